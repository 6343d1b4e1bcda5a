// Command coredns is CoreDNS with the plugins that the cluster's Corefile names, and no others: most of the time that it
// takes to compile CoreDNS as released goes into the clouds' own name services.
// See https://coredns.io/2017/07/25/compile-time-enabling-or-disabling-plugins/.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func init() {
	// The order in which plugins see a query, as in CoreDNS' plugin.cfg.
	dnsserver.Directives = []string{"bind", "ready", "errors", "template", "kubernetes"}
}

func main() {
	coremain.Run()
}
