package topology

import (
	"errors"
	"fmt"
	"strings"
)

var loginModules = map[string]string{
	MechanismPlain:       "org.apache.kafka.common.security.plain.PlainLoginModule",
	MechanismScramSHA256: "org.apache.kafka.common.security.scram.ScramLoginModule",
	MechanismScramSHA512: "org.apache.kafka.common.security.scram.ScramLoginModule",
}

// login is the content of a sasl.jaas.config.
type login struct {
	module   string
	username string
	password Secret
}

// parseJAAS reads one JAAS entry. Its errors never quote a value.
func parseJAAS(config string) (login, error) {
	var l login
	tokens, err := jaasTokens(config)
	if err != nil {
		return l, err
	}
	if len(tokens) < 3 || tokens[len(tokens)-1] != ";" {
		return l, errors.New("incomplete JAAS entry")
	}
	l.module = tokens[0]
	known := false
	for _, module := range loginModules {
		known = known || module == l.module
	}
	if !known {
		return login{}, errors.New("unknown login module")
	}
	if !strings.EqualFold(tokens[1], "required") {
		return l, errors.New(`the login module's flag has to be "required"`)
	}
	options := tokens[2 : len(tokens)-1]
	for len(options) > 0 {
		if len(options) < 3 || options[1] != "=" {
			return l, errors.New("a login module option has to be name=\"value\"")
		}
		switch options[0] {
		case "username":
			l.username = options[2]
		case "password":
			l.password = Secret(options[2])
		case "tokenauth", "serviceName":
			return l, fmt.Errorf("login module option %q is not supported", options[0])
		default:
			return l, errors.New("unknown login module option besides username and password")
		}
		options = options[3:]
	}
	return l, nil
}

// jaasTokens splits a JAAS entry into words, "=" and ";". Quoted words may
// hold anything; a backslash takes the next character as it is.
func jaasTokens(config string) ([]string, error) {
	var tokens []string
	rest := config
	for {
		rest = strings.TrimLeft(rest, " \t\r\n")
		if rest == "" {
			return tokens, nil
		}
		switch c := rest[0]; c {
		case '=', ';':
			tokens, rest = append(tokens, rest[:1]), rest[1:]
		case '"', '\'':
			word, after, ok := quoted(rest[1:], c)
			if !ok {
				return nil, errors.New("unclosed quote")
			}
			tokens, rest = append(tokens, word), after
		default:
			end := strings.IndexAny(rest, " \t\r\n=;\"'")
			if end < 0 {
				end = len(rest)
			}
			tokens, rest = append(tokens, rest[:end]), rest[end:]
		}
	}
}

func quoted(s string, quote byte) (word, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
