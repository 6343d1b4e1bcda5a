//go:build tools

// Package kuberouter names the command that devcluster builds, so that go mod tidy keeps what it needs.
package kuberouter

import (
	_ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
)
