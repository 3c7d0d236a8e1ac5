//go:build pins

// Package pins imports CoreDNS so that go.mod and go.sum list all its dependencies.
// It is never compiled.
package pins

import (
	_ "github.com/coredns/coredns"
)
