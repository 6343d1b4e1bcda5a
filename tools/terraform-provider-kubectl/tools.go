//go:build tools

// Package kubectl names the provider that devcluster builds, so that go mod tidy keeps what it needs.
package kubectl

import (
	_ "github.com/gavinbunney/terraform-provider-kubectl"
)
