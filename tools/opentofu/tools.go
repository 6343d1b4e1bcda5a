//go:build tools

// Package opentofu names the command that devcluster builds, so that go mod tidy keeps what it needs.
package opentofu

import (
	_ "github.com/opentofu/opentofu/cmd/tofu"
)
