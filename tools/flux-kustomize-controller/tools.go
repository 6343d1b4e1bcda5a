//go:build tools

// Package flux names the program that devcluster builds, so that go mod tidy keeps what it needs.
package flux

import _ "github.com/fluxcd/kustomize-controller"
