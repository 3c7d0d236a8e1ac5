//go:build pins

// Package pins imports kube-apiserver so that go.mod and go.sum list all its
// dependencies. It is never compiled.
package pins

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
