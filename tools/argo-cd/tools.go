//go:build tools

// Package argocd names the command that devcluster builds, so that go mod tidy keeps what it needs.
package argocd

import (
	_ "github.com/argoproj/argo-cd/v3/cmd"
)
