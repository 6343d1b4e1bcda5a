//go:build tools

// Package helm names the provider that devcluster builds, so that go mod tidy keeps what it needs.
package helm

import (
	_ "github.com/hashicorp/terraform-provider-helm"
)
