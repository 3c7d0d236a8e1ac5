//go:build pins

// Package pins names CoreDNS so that go.mod and go.sum hold all that it needs.
// It is never compiled.
package pins

import (
	_ "github.com/coredns/coredns"
)
