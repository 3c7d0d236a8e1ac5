//go:build pins

// Package pins names Ignition's validator so that go.mod and go.sum hold all
// that it needs. It is never compiled.
package pins

import (
	_ "github.com/coreos/ignition/v2/validate"
)
