// Command template says what Go's text/template makes of templates, as Helm uses it.
//
// It reads JSON lines of sources and data, and writes a JSON line with the output or the error for each. The functions are
// those of crates/chart/src/template/tests/functions.rs.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"

	"istio-operators.io/chart/oracle/template/common"
)

type source struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

type request struct {
	Sources []source        `json:"sources"`
	Data    json.RawMessage `json:"data"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var request request
		if err := json.Unmarshal(line, &request); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		text, err := render(request)
		if err != nil {
			err = encoder.Encode(map[string]string{"err": err.Error()})
		} else {
			err = encoder.Encode(map[string]string{"out": text})
		}
		if err != nil {
			os.Exit(1)
		}
	}
	out.Flush()
}

func render(request request) (string, error) {
	var data any
	if err := json.Unmarshal(request.Data, &data); err != nil {
		return "", err
	}
	t := template.New("gotpl")
	t.Option("missingkey=zero")
	t.Funcs(functions(t))
	for _, source := range request.Sources {
		if _, err := t.New(source.Name).Parse(source.Text); err != nil {
			return "", err
		}
	}
	var buf strings.Builder
	if err := t.ExecuteTemplate(&buf, request.Sources[0].Name, typed(data)); err != nil {
		return "", err
	}
	return buf.String(), nil
}

// typed gives data the types that JSON cannot say: {"$int": 1} is an int.
func typed(data any) any {
	switch data := data.(type) {
	case []any:
		for i := range data {
			data[i] = typed(data[i])
		}
	case map[string]any:
		for key, value := range data {
			switch key {
			case "$int":
				return int(value.(float64))
			case "$int64":
				return int64(value.(float64))
			case "$bytes":
				return []byte(value.(string))
			case "$strs":
				strs := []string{}
				for _, item := range value.([]any) {
					strs = append(strs, item.(string))
				}
				return strs
			case "$ints":
				ints := []int{}
				for _, item := range value.([]any) {
					ints = append(ints, int(item.(float64)))
				}
				return ints
			case "$strings":
				strs := map[string]string{}
				for key, item := range value.(map[string]any) {
					strs[key] = item.(string)
				}
				return strs
			case "$values":
				return common.Values(typed(value).(map[string]any))
			}
			data[key] = typed(value)
		}
	}
	return data
}

func functions(t *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": include(t),
		"tpl":     tpl(t),
		"str":     func(s string) string { return "s:" + s },
		"num":     func(i int) int { return i + 1 },
		"big":     func(i int64) int64 { return i + 1 },
		"flt":     func(f float64) float64 { return f },
		"yes":     func(b bool) bool { return !b },
		"bytes":   func(b []byte) int { return len(b) },
		"keys": func(m map[string]any) string {
			keys := []string{}
			for key := range m {
				keys = append(keys, key)
			}
			slices.Sort(keys)
			return strings.Join(keys, ",")
		},
		"strmap": func(m map[string]string) int { return len(m) },
		"items":  func(l []any) int { return len(l) },
		"strs":   func(l []string) int { return len(l) },
		"id":     func(v any) any { return v },
		"two":    func(s string, rest ...int) string { return fmt.Sprint(s, len(rest)) },
		"cat":    func(l ...string) string { return strings.Join(l, "+") },
		"list":   func(l ...any) []any { return l },
		"dict": func(l ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(l); i += 2 {
				var value any = ""
				if i+1 < len(l) {
					value = l[i+1]
				}
				m[fmt.Sprint(l[i])] = value
			}
			return m
		},
		"nothing": func() any { return nil },
		"default": func(d any, given ...any) any {
			if len(given) == 0 || given[0] == nil {
				return d
			}
			return given[0]
		},
		"set": func(m map[string]any, key string, value any) map[string]any {
			m[key] = value
			return m
		},
		"fail": func(message string) (string, error) { return "", errors.New(message) },
	}
}

func include(t *template.Template) func(string, any) (string, error) {
	return func(name string, data any) (string, error) {
		var buf strings.Builder
		err := t.ExecuteTemplate(&buf, name, data)
		return buf.String(), err
	}
}

func tpl(parent *template.Template) func(string, any) (string, error) {
	return func(text string, data any) (string, error) {
		t, err := parent.Clone()
		if err != nil {
			return "", fmt.Errorf("cannot clone template: %w", err)
		}
		t.Option("missingkey=zero")
		t.Funcs(template.FuncMap{"include": include(t), "tpl": tpl(t)})
		t, err = t.New(parent.Name()).Parse(text)
		if err != nil {
			return "", fmt.Errorf("cannot parse template %q: %w", text, err)
		}
		var buf strings.Builder
		if err := t.Execute(&buf, data); err != nil {
			return "", fmt.Errorf("error during tpl function execution for %q: %w", text, err)
		}
		return strings.ReplaceAll(buf.String(), "<no value>", ""), nil
	}
}
