package jsonschema

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	c "ringmaster/constraint"
)

// formatCorpus has the examples of each format's standard, and what its grammar allows and
// refuses at the edges.
var formatCorpus = map[string]struct{ valid, invalid []string }{
	"date": { // RFC 3339, 5.6
		[]string{"1996-12-19", "2024-02-29", "2000-02-29", "0000-01-01", "9999-12-31"},
		[]string{"1996-13-19", "2023-02-29", "1900-02-29", "2023-04-31", "96-12-19", "1996-12-19T", "1996/12/19", "2023-00-01", "2023-01-00", "١٩٩٦-12-19"},
	},
	"time": {
		[]string{"23:20:50.52Z", "16:39:57-08:00", "23:59:60Z", "15:59:60-08:00", "12:00:27.87+00:20", "08:30:06.283185Z", "23:59:60+00:00", "01:29:60+01:30", "23:29:60+23:30", "00:29:60-23:30", "23:59:60.123456789012z", "05:44:60+05:45", "00:00:00-00:00"},
		[]string{"24:00:00Z", "23:60:00Z", "22:59:60Z", "23:58:60Z", "23:59:60+01:00", "23:59:60+00:30", "23:59:60-01:00", "23:59:61Z", "08:30:06", "08:30Z", "08:30:06.Z", "08:30:06+1:00", "08:30:06+24:00", "08:30:06+00:60", "8:30:06Z"},
	},
	"date-time": { // RFC 3339, 5.8
		[]string{"1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00", "1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "1937-01-01T12:00:27.87+00:20", "1963-06-19t08:30:06.283185z", "1998-12-31T23:59:60Z"},
		[]string{"1998-12-31T23:59:61Z", "1998-12-31T23:58:60Z", "1998-12-31T22:59:60Z", "1990-02-31T15:59:59Z", "1990-12-31T15:59:59-24:00", "06/19/1963 08:30:06 PST", "2013-350T01:01:01", "1963-06-19 08:30:06Z", "1963-06-19T08:30:06"},
	},
	"duration": { // RFC 3339, appendix A
		[]string{"P4DT12H30M5S", "P4Y", "PT0S", "P0D", "P1M", "PT1M", "PT36H", "P1DT12H", "P2W", "P1Y2M3DT4H5M6S", "P123456789012D"},
		[]string{"", "P", "PT", "P1", "1D", "P1DT", "PT1D", "P2D1Y", "P1D2H", "P2S", "P1Y2W", "P1W1D", "P1Y2D", "PT1H2S", "P-1D", "P1.5D", "p1d", "P২Y"},
	},
	"uuid": { // RFC 4122
		[]string{"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "2EB8AA08-AA98-11EA-B4AA-73B441D16380", "00000000-0000-0000-0000-000000000000"},
		[]string{"f81d4fae7dec11d0a76500a0c91e6bf6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf", "f81d4fae-7dec-11d0-a765-00a0c91e6bfg", "{f81d4fae-7dec-11d0-a765-00a0c91e6bf6}", "2eb8-aa08-aa98-11ea-b4aa73b44-1d16380"},
	},
	"ipv4": { // RFC 2673, 3.2
		[]string{"192.168.0.1", "0.0.0.0", "255.255.255.255", "87.10.0.1"},
		[]string{"256.0.0.1", "127.0.0.0.1", "127.0.0", "087.10.0.1", "127.0", "0x7f.0.0.1", "1.2.3.4 ", "1.2.3.+4", "192.168.1.0/24", ""},
	},
	"ipv6": { // RFC 4291, 2.2
		[]string{"ABCD:EF01:2345:6789:ABCD:EF01:2345:6789", "2001:DB8:0:0:8:800:200C:417A", "2001:DB8::8:800:200C:417A", "FF01::101", "::1", "::", "0:0:0:0:0:0:13.1.68.3", "0:0:0:0:0:FFFF:129.144.52.38", "::13.1.68.3", "::FFFF:129.144.52.38",
			"1::", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6::8", "1:2:3:4::5:1.2.3.4", "1::d6:192.168.0.1", "::42:ff:1", "d6::"},
		[]string{"12345::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1::2::3", ":2:3:4:5:6:7:8", "1:2:3:4:5:6:7:", "1:2:3:4:5:6:7::8", "::abef:laptop", "fe80::a%eth1", "fe80::/64", "1:2:3:4:1.2.3", "::ffff:256.1.1.1", "1.2.3.4::", "100:100:100:100:100:100:255.255.255.255.255", ":", "1:1:1:1:1:1:1:1.2.3.4", ""},
	},
	"hostname": { // RFC 1123, 2.1
		[]string{"www.example.com", "a", "1", "3com.com", "a.b.c.d.e.f.g", "xn--4gbwdl.xn--wgbh1c", "r1---sn-abc.example", strings.Repeat("a", 63) + ".com", strings.Repeat("a.", 50) + "b"},
		[]string{"", "-a", "a-", "a..b", ".a", "a.", "a_b", "not_valid.com", "a b", "-a-host-name-that-starts-with--", strings.Repeat("a", 64) + ".com", "ex\u00e4mple.com"},
	},
	"email": { // RFC 5321, 4.1.2
		[]string{"joe.bloggs@example.com", "te~st@example.com", "~test~@example.com", "te.s.t@example.com", `"joe bloggs"@example.com`, `"joe..bloggs"@example.com`, `"joe@bloggs"@example.com`, `"a\"b"@example.com`, "joe.bloggs@[127.0.0.1]", "joe@[IPv6:::1]",
			"firstname.lastname.of.many.parts.and.words@mail.sub.example.co.uk", "averyveryverylongname@example.com", "user@localhost", "o'neil+tag`x@example.org", strings.Repeat("a", 64) + "@b.c", "!#$%&'*+-/=?^_`{|}~@example.org", "a@" + strings.Repeat("a", 63) + ".org"},
		[]string{"", "2962", ".test@example.com", "test.@example.com", "te..st@example.com", "joe.bloggs@[127.0.0.300]", "joe.bloggs@invalid=domain.com", "a@b@c", "a b@c", "@example.com", "a@", "a@-b.c", strings.Repeat("a", 65) + "@b.c", `"a"b"@c.d`, "a@" + strings.Repeat("a", 64) + ".org", "a@b."},
	},
	"uri": { // RFC 3986, 1.1.2 and 5.4
		[]string{"ftp://ftp.is.co.za/rfc/rfc1808.txt", "http://www.ietf.org/rfc/rfc2396.txt", "ldap://[2001:db8::7]/c=GB?objectClass?one", "mailto:John.Doe@example.com", "news:comp.infosystems.www.servers.unix", "tel:+1-816-555-1212", "telnet://192.0.2.16:80/", "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
			"foo://example.com:8042/over/there?name=ferret#nose", "http://a/b/c/d;p?q", "file:///etc/hosts", "https://user:pa%20ss@example.com:8443/a//b/?x=/y?z#f/?", "about:", "data:text/plain;base64,SGVsbG8=", "http://[v1.fe80::a+en1]/", "https://example.com/" + strings.Repeat("long/", 500), "x:/", "http://-.~_!$&'()*+,;=:%40:80%2f::::::@example.com"},
		[]string{"", "//foo.bar/", "/abc", "abc", "\\\\WINDOWS\\fileshare", "http:// shouldfail.com", ":// should fail", "bar,baz:foo", "1http://a", "http://a/b c", "http://a/%zz", "http://a/<b>", "http://a#b#c", "https://[@example.org/test.txt", "https://example.org/foobar\"", "http://[::1", "http://a:80a/", "http://ä.de/", "http://a/{b}", "http://a/^"},
	},
}

// Every enforced format compiles, in both forms of characters, and allows exactly what its
// standard does; a constant is judged alike.
func TestFormats(t *testing.T) {
	for name, f := range formats {
		corpus, ok := formatCorpus[name]
		require.True(t, ok, name)
		require.NotEmpty(t, corpus.valid)
		require.NotEmpty(t, corpus.invalid)
		g := grammar(t, `{"type":"string","format":"`+name+`"}`, Options{})
		plain, err := f.expr(c.Runes, "plain")
		require.NoError(t, err)
		p, err := c.Compile(plain, vocabulary, nil)
		require.NoError(t, err)
		check := func(text string, valid bool) {
			require.Equal(t, valid, matches(g, quote(text)), "%s %q", name, text)
			require.Equal(t, valid, matches(p, text), "%s %q, plain", name, text)
			_, err := Compile([]byte(`{"format":"`+name+`","const":`+quote(text)+`}`), Options{})
			require.Equal(t, valid, err == nil, "%s %q, constant", name, text)
		}
		for _, text := range corpus.valid {
			check(text, true)
		}
		for _, text := range corpus.invalid {
			check(text, false)
		}
	}
}

// Formats, patterns and lengths are enforced together.
func TestTextsTogether(t *testing.T) {
	for _, tt := range []struct {
		schema  string
		yes, no []string
	}{
		{`{"type":"string","format":"email","pattern":"@example\\.com$"}`, []string{"a.b@example.com"}, []string{"a..b@example.com", "a@example.org"}},
		{`{"type":"string","format":"email","maxLength":255,"minLength":8}`, []string{"a@bc.def", strings.Repeat("a", 60) + "@b.c"}, []string{"a@b.c", "a.b.c.d.", strings.Repeat("a.", 130) + "a@b.c"}},
		{`{"type":"string","format":"date","pattern":"^20"}`, []string{"2024-02-29"}, []string{"1999-01-01", "20"}},
		{`{"type":"string","format":"uuid","minLength":1,"maxLength":100}`, []string{"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"}, []string{"f81d4fae"}},
		{`{"type":"string","format":"uri","pattern":"^https?://","minLength":1,"maxLength":2083}`, []string{"https://a.b/c", "https://a.b/" + strings.Repeat("x", 2071)}, []string{"ftp://a.b", "https://a b", "https://a.b/" + strings.Repeat("x", 2072)}},
		{`{"type":"string","allOf":[{"pattern":"^a"},{"pattern":"b$"}],"minLength":3}`, []string{"aab", "acb"}, []string{"ab", "abc"}},
		{`{"type":"string","pattern":"^[a-z\"]+$","maxLength":3}`, []string{"a", `a"b`}, []string{"", "abcd", "A"}},
		{`{"type":"string","pattern":"^(?!.*--)[a-z-]+$"}`, []string{"a-b"}, []string{"a--b"}},
		{`{"enum":["a--b","a-b"],"pattern":"^(?!.*--)[a-z-]+$"}`, []string{"a-b"}, []string{"a--b"}},
		{`{"type":"string","minLength":1,"format":"unknown"}`, []string{"x"}, []string{""}},
	} {
		g := grammar(t, tt.schema, Options{})
		for _, text := range tt.yes {
			require.True(t, matches(g, quote(text)), "%s %q", tt.schema, text)
		}
		for _, text := range tt.no {
			require.False(t, matches(g, quote(text)), "%s %q", tt.schema, text)
		}
	}
	for _, schema := range []string{`{"format":"date","pattern":"^x"}`, `{"pattern":"^a$","minLength":2}`} {
		_, err := Compile([]byte(`{"type":"string",`+schema[1:]), Options{})
		if err == nil {
			e, _ := Compile([]byte(`{"type":"string",`+schema[1:]), Options{})
			_, err = c.Compile(e, vocabulary, nil)
		}
		require.Error(t, err, "nothing satisfies %s", schema)
	}
}
