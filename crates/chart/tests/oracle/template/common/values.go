// Package common has the type that Helm's package of this name has.
package common

// Values are the values of a chart.
type Values map[string]any
