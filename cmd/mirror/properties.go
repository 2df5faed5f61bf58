package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
)

// parseProperties reads a Java properties file as Kafka's own tools do: the
// bytes are ISO 8859-1, a key given twice takes its last value. Errors name
// the line and never the value.
func parseProperties(data []byte) (map[string]string, error) {
	text := make([]rune, len(data))
	for i, b := range data {
		text[i] = rune(b)
	}
	all := map[string]string{}
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(text)), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		first := i + 1
		for continues(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		key, value, err := property(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", first, err)
		}
		all[key] = value
	}
	return all, nil
}

// continues reports whether a line ends in an odd number of backslashes.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// property splits a line at its first "=", ":" or space that no backslash
// protects.
func property(line string) (key, value string, err error) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
		} else if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	if key, err = unescape(line[:end]); err != nil {
		return "", "", err
	}
	value, err = unescape(rest)
	return key, value, err
}

// unescape resolves backslashes; \uXXXX are UTF-16 units, as in Java.
func unescape(s string) (string, error) {
	var units []uint16
	runes := []rune(s)
	for i := 0; i < len(runes); i++ {
		r := runes[i]
		if r == '\\' && i+1 < len(runes) {
			i++
			r = runes[i]
			switch r {
			case 't':
				r = '\t'
			case 'n':
				r = '\n'
			case 'r':
				r = '\r'
			case 'f':
				r = '\f'
			case 'u':
				if i+4 >= len(runes) {
					return "", errors.New(`\u needs four hexadecimal digits`)
				}
				unit, err := strconv.ParseUint(string(runes[i+1:i+5]), 16, 16)
				if err != nil {
					return "", errors.New(`\u needs four hexadecimal digits`)
				}
				i, r = i+4, rune(unit)
			}
		}
		units = append(units, uint16(r)) // input is ISO 8859-1: each rune is one unit
	}
	return string(utf16.Decode(units)), nil
}
