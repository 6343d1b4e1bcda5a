//go:build tools

// Package terraform names the commands that devcluster builds, so that go mod tidy keeps what they need.
package terraform

import (
	_ "github.com/hashicorp/terraform"
)
