//go:build pins

// Package pins imports Ignition's validator so that go.mod and go.sum list
// all its dependencies. It is never compiled.
package pins

import (
	_ "github.com/coreos/ignition/v2/validate"
)
