package topology

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a string that never prints itself: fmt (any verb), encoding/json,
// YAML and slog all show "***". Convert with string(s) where the value is
// needed.
type Secret string

const redacted = "***"

// Format prints "***" whatever the verb.
func (Secret) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, redacted) }

// String returns "***".
func (Secret) String() string { return redacted }

// GoString returns "***".
func (Secret) GoString() string { return redacted }

// MarshalText returns "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns "***" in quotes.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalYAML returns "***".
func (Secret) MarshalYAML() (any, error) { return redacted, nil }

// LogValue returns "***".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
