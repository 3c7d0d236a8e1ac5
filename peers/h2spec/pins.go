//go:build pins

// Package pins imports h2spec so that go.mod and go.sum list all its
// dependencies. It is never compiled.
package pins

import (
	_ "github.com/summerwind/h2spec/cmd/h2spec"
)
