package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lockproxy/lockproxy/backends/upstream"
	"github.com/lockproxy/lockproxy/cmd/lockproxy/client"
)

// exposures are the settings that let others see or do more than they should, as messages
// for the log. None prevents the start.
func (c config) exposures(o *options, all []setting) (out []string) {
	for _, s := range all {
		g := c[s.name]
		if s.secret && g.from == "--"+s.name && slices.ContainsFunc(g.values, s.holdsPassword) {
			out = append(out, fmt.Sprintf("%s: a password on the command line is seen by everybody who may list processes; use --%s-file or %s", s.name, s.name, s.env()))
		}
	}
	if isPublic(o.listen) && o.clientTLS == nil {
		out = append(out, "listen: other machines reach "+o.listen+" without TLS, so that passwords and data can be read on the way; set tls-cert and tls-key, or listen on a loopback address")
	}
	if isPublic(o.admin) && o.adminPassword != "" && !o.adminTLS {
		out = append(out, "admin: other machines reach "+o.admin+" without TLS, so that admin-password can be read on the way; set admin-tls, or listen on a loopback address")
	}
	return out
}

// urlPassword finds a password in a URL, and may find one where there is none.
var urlPassword = regexp.MustCompile(`//[^@]*:[^@]+@|password=`)

// holdsPassword reports whether a value of the setting holds a password. A URL with no more than a user does not.
func (s setting) holdsPassword(value string) bool {
	return s.secret && (!s.url || urlPassword.MatchString(value))
}

// admitsAnonymous reports whether clients on other machines need neither a certificate nor a
// password, as far as is known of the upstream.
func admitsAnonymous(o *options, up *upstream.Upstream) bool {
	return o.unguarded() && up.Pool().AllowsAnonymous()
}

// unguarded reports whether clients on other machines can connect without a certificate.
func (o *options) unguarded() bool {
	return isPublic(o.listen) && (o.clientTLS == nil || o.clientTLS.CA == nil)
}

const anonymousWarning = "other machines can connect, and clients need no password: the upstream asks for none, or its URL holds the one that clients then have"

// withoutSecrets is an environment without the variables that hold passwords for
// lockproxy. Those that name a file stay.
func withoutSecrets(environ []string) []string {
	secret := map[string]setting{}
	for _, s := range slices.Concat(new(options).settings(), runSettings(new(client.Options), new(options))) {
		if s.secret {
			secret[s.env()] = s
		}
	}
	return slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, value, _ := strings.Cut(entry, "=")
		s, ok := secret[name]
		return ok && s.holdsPassword(value)
	})
}
