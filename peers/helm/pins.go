//go:build pins

// Package pins imports Helm so that go.mod and go.sum list all its dependencies.
// It is never compiled.
package pins

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
