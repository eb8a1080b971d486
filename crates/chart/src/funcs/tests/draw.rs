//! Random calls.

use serde_json::{Value as Json, json};

use super::Entry;
use super::oracle::raw;
use crate::value::Type;

/// Numbers by `SplitMix64`.
pub(super) struct Draw(u64);

const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "foo",
    "Foo Bar",
    "foo bar baz qux",
    "foo_bar-baz",
    "HTTPServer2xx",
    "Bld4Floor3rd",
    "someID42",
    "  pad  ",
    "line1\nline2\n",
    "a,b,,c",
    "a/b/c",
    "1",
    "0",
    "-5",
    "3.0",
    "3.10",
    "0x1f",
    "0b101",
    "017",
    "08",
    "0o17",
    "1_000",
    "1e3",
    ".5",
    "5.",
    "NaN",
    "inf",
    "-Inf",
    "99999999999999999999",
    "true",
    "héé wörld",
    "日本語 text",
    "ǆ ǅ Ǆ",
    "İstanbul ß ﬁ",
    "Ωμέγα ς",
    "<a href='x'>&\"=\\",
    "tab\tx",
    "\u{7f}\u{ad}\u{200b}\u{1f600}",
    "a\u{300}b",
    "xaxbxc",
    "`tick`",
    "%v %d",
    "_",
    "--a-b__C",
    "A",
    "ABC def",
    "\u{a0}nb\u{85}sp",
    "ⅷ Ⅷ ᾳ",
    "Ꙁ ꙁ ა Ა",
    "a1b22c333",
    "1a",
    "FOOBar",
    "x.y.z",
    "$1 ${name} $$",
    "hello world, this is long text to wrap",
];

const PATTERNS: &[&str] = &[
    "a",
    "",
    "a*",
    "(a)(b)?",
    "[a-z]+",
    "[^a-z]",
    "\\d+",
    "\\w+\\s*",
    "^foo",
    "bar$",
    "(?i)FOO",
    "(?P<name>o+)",
    "(?<name>b)",
    "a|b|",
    "x{2,3}",
    "x{,3}",
    "a{2}{3}",
    "a**",
    "a*?",
    "a+?",
    "a??",
    "(",
    ")",
    "[",
    "[a",
    "a)",
    "*a",
    "(?x)a",
    "(?:o)",
    "\\bfoo\\b",
    "[[:alpha:]]+",
    "[[:foo:]]",
    "\\pL+",
    "\\p{Greek}",
    "\\p{Foo}",
    "\\PL",
    "\\p{^L}",
    "[\\d-]",
    "[z-a]",
    "[]a]",
    "[^]a]",
    "\\Qa.b\\E+",
    "\\z",
    "\\A.",
    ".",
    "(?s).",
    "\\C",
    "\\8",
    "\\1",
    "\\x41",
    "\\x{1F600}",
    "\\x{110000}",
    "\\07",
    "\\_",
    "\\q",
    "a{1001}",
    "(a{100}){100}",
    "(?i-s:F.)",
    "(?-)",
    "(?i",
    "(?P<n",
    "(?P<>a)",
    "\\",
    "[a&&b]",
    "[a--b]",
    "[[a]",
    "o*",
    "(o|a)*",
    "[\\w.]+@[\\w.]+",
    "é",
    "(?U)a+",
    "(?m)^l.*$",
    "a{0}",
    "(a*)*",
    "(|a)+",
    "[a-\\d]",
    "$",
    "^",
    "^*",
    "(?i)ß",
    "(?i)k",
    "\\s",
    "\\S+",
    "[\\x{61}-c]",
    "[a-]",
    "a{2,1}",
    "x*y",
    "\\.",
    "\\-",
    "[\\-a]",
    "(a))",
    "((a)",
    "a||b",
    "\\Boo\\B",
    "(?=a)",
    "(?!a)",
    "(?#c)",
    "\\pN",
    "\\p",
    "(?P=n)",
];

const REPLACEMENTS: &[&str] = &[
    "", "X", "$1", "${1}x", "$1x", "${name}", "$$", "$", "${", "$0", "[$0]", "${1", "$name-", "$2", "\\1",
    "$01", "日$1",
];

const FORMATS: &[&str] = &[
    "%v",
    "%+v",
    "%#v",
    "%T",
    "%d",
    "%s",
    "%q",
    "%x",
    "%X",
    "%t",
    "%f",
    "%e",
    "%g",
    "%G",
    "%E",
    "%F",
    "%b",
    "%o",
    "%O",
    "%c",
    "%U",
    "%#U",
    "%z",
    "%%",
    "%",
    "%5d",
    "%-5d|",
    "%05d",
    "%+d",
    "% d",
    "%x",
    "%#x",
    "%#o",
    "%#b",
    "%.3d",
    "%08.3f",
    "%.2f",
    "%+.2e",
    "%6.2f|",
    "%-8.2f|",
    "%.0f",
    "%#.3g",
    "%#g",
    "%.3g",
    "%.10g",
    "%10s|",
    "%-10s|",
    "%.2s",
    "%5.1s|",
    "%05s",
    "%+q",
    "%#q",
    "%.2q",
    "% x",
    "%#x",
    "% #x",
    "%X",
    "%*d",
    "%-*d|",
    "%.*f",
    "%[2]d %[1]d",
    "%[3]d",
    "%[x]d",
    "%[1]*d",
    "%[2]*[1]d",
    "%[1]",
    "%!",
    "%!d",
    "%6v|",
    "%-6v|",
    "%06v",
    "%w",
    "%999d",
    "%1000001d",
    "%.1000001d",
    "%3c|",
    "%-3q|",
    "%#v %v",
    "a%vb%vc",
    "no verbs",
    "%v %v %v",
    "%é",
    "%.",
    "%+",
    "%.[1]f",
    "%x %X",
    "%#X",
    "%+x",
    "%.3x",
    "%8x|",
    "%t|",
    "%5t|",
    "%.1v",
    "%.3v",
    "%+08d",
    "%+08.2f",
    "% 08.2f",
    "%020d",
    "%-020d|",
    "%+.3x",
    "%.0x",
    "%#.0f",
    "%#e",
    "%.50f",
    "%.20e",
    "%v%%",
    "%2$d",
    "%[1]v %[1]T",
    "%.f",
    "%.0e",
    "%.1g",
    "%100.50f",
];

const VERSIONS: &[&str] = &[
    "1.2.3",
    "v1.2.3",
    "1.2",
    "1",
    "0.0.0",
    "0.1.0",
    "0.0.3",
    "1.2.3-beta.1",
    "1.2.3-alpha",
    "1.2.3-beta.11",
    "1.2.3-1",
    "1.2.3-01",
    "1.2.3+meta",
    "1.2.3-beta+m",
    "2.0.0",
    "1.10.0",
    "01.2.3",
    "1.2.3.4",
    "x",
    "",
    " 1.2.3",
    "1.2.3-",
    "1.2.3-a..b",
    "99999999999999999999.0.0",
    "1.99999999999999999999",
    "v1.28.3-gke.100",
    "1.2.3-rc.1.2",
    "0.2.5",
    "1.2.4",
    "1.3.0",
    "V1.2.3",
];

const CONSTRAINTS: &[&str] = &[
    "1.2.3",
    "=1.2.3",
    "!=1.2.3",
    ">1.2.3",
    "<1.2.3",
    ">=1.2.3",
    "=>1.2",
    "<=1.2",
    "=<1",
    "~1.2.3",
    "~1.2",
    "~1",
    "~>1.2",
    "^1.2.3",
    "^0.2.3",
    "^0.0.3",
    "^0",
    "^0.0",
    "^1.x",
    "1.x",
    "1.2.x",
    "*",
    "x",
    "",
    "!=1.x",
    "!=1.2.x",
    ">1.2.x",
    ">1",
    "<=1.2.x",
    ">=1.0, <2.0",
    ">=1.0 <2.0",
    "1.0 - 2.0",
    "1.2 - 1.4.5 || 2.x",
    ">=1.2.3-0",
    ">1.2.3-beta.2",
    "^1.2.3-0",
    "~1.2.3-beta",
    "!=1.2.3-beta",
    ">= 1.2.3 || < 1.0",
    "||",
    "foo",
    ">=",
    "1.2.3 foo",
    ">=v1.2",
    "1.2.3+meta",
    ">=1.2.3,",
    "~0.0.0",
    "~*",
    "^*",
    ">*",
    "1.2.3.4",
    "1.|",
    "~1.2.x-beta",
    ">=01.2",
    "<1.2-x",
    "!=x-a",
];

const URLS: &[&str] = &[
    "http://example.com/a/b?c=d#e",
    "https://user:pa%20ss@host:8080/p%2Fq?x=1&y=2#frag%20ment",
    "mailto:a@b.c",
    "/path/only",
    "//host/path",
    "",
    "*",
    ":foo",
    "a:b",
    "a b",
    "http://[::1]:80/x",
    "http://[fe80::1%25en0]/",
    "http://[1.2.3.4]/",
    "http://[::g]/",
    "http://a b/",
    "http://a%20b/",
    "http://h:port/",
    "http://h:1:2/",
    "ftp://h:1:2/",
    "http://%zz/",
    "/a%zz",
    "/a%2",
    "x?y#z",
    "http://host",
    "http://host?",
    "HTTP://Host/ü",
    "http://u@h@k/",
    "http://us er@h/",
    "1http://x",
    "http:///x",
    "http://h/#%zz",
    "foo/bar:baz",
    "foo:80/x",
    "http://[::1",
    "http://[::1]x/",
    "file:///etc/x",
    "http://ü.de/ä?ö#ß",
    "http://[::ffff:1.2.3.4]/",
    "http://[1:2:3:4:5:6:7:8]/",
    "http://[1::2::3]/",
    "a\nb",
    "#f",
    "?q",
    "http://h/a!b*c'(d)",
];

const DURATIONS: &[&str] = &[
    "1h",
    "1h30m",
    "90s",
    "1.5h",
    "-2m",
    "+3s",
    "100ms",
    "1us",
    "1µs",
    "2μs",
    "5ns",
    "0",
    "",
    "1",
    "2.5",
    "h",
    "1x",
    ".5s",
    "1.s",
    ".s",
    "-",
    "9999999999h",
    "1h-2m",
    " 1h ",
    "2562047h47m16.854775807s",
    "2562047h47m16.854775808s",
    "-2562047h47m16.854775808s",
    "8760h1s",
    "721h",
    "25h",
    "1e3",
    "NaN",
    "0.1234567891234s",
    "3d",
];

const PATHS: &[&str] = &[
    "", ".", "/", "a", "/a", "a/", "a/b/../c", "/../a", "../../a", "a//b", "./a", "a/./b", "/a/b.txt",
    "a.b/c", ".hidden", "a.tar.gz", "//", "a/..", "../..", "/..", "a/../..", "é/ü.ö",
];

const ENCODED: &[&str] = &[
    "Zm9v",
    "Zm9vYg==",
    "Zm9vYmE=",
    "Zm9vYg=",
    "Zm9vY",
    "Zm9v\nYmE=",
    "Zm9vYg=\n=",
    "Zm9v=",
    "====",
    "Z",
    "Zm",
    "Zm=",
    "Zm9vYg==x",
    "//79",
    "gIGC",
    "Zm9!YmE=",
    "MZXW6===",
    "MZXW6YQ=",
    "MZXW6YTBOI======",
    "MZXW6",
    "MZXW6=",
    "mzxw6===",
    "MZXW6==A",
    "M=======",
    "MZ======",
    "MZX=====",
    "MZXW====",
    "MZXW6Y==",
    "AAAAAAAA",
    "AAAAAAAAMZXW6===",
    "A\r\nA======",
];

const KEYS: &[&str] = &["a", "b", "foo", "x", "_0", ""];

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn pick<'i, T>(&mut self, items: &'i [T]) -> &'i T {
        &items[self.below(items.len())]
    }

    fn text(&mut self) -> String {
        let mut text = (*self.pick::<&str>(TEXTS)).to_owned();
        if self.one_in(4) {
            text.push_str(self.pick::<&str>(TEXTS));
        }
        text
    }

    fn string(&mut self) -> Json {
        json!({ "t": "str", "v": self.text() })
    }

    /// A number for counts and positions, mostly small.
    fn small(&mut self) -> i64 {
        i64::try_from(self.below(16)).unwrap() - 4
    }

    fn int(&mut self) -> i64 {
        match self.below(8) {
            0 => *self.pick(&[i64::MAX, i64::MIN, 1_000_000, -1_000_000, 1 << 32, 0x1f600, 0xd800]),
            1 => i64::from_ne_bytes(self.next().to_ne_bytes()) >> self.below(63),
            _ => self.small(),
        }
    }

    fn float(&mut self) -> f64 {
        const FLOATS: &[f64] = &[
            0.0,
            -0.0,
            1.0,
            1.5,
            -2.5,
            0.5,
            100.0,
            1e6,
            123_456_789.0,
            1e20,
            1e21,
            1e22,
            1e-4,
            1e-5,
            0.1,
            2.675,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            5e-324,
            f64::MAX,
            1e100,
            3.0,
            9.223_372_036_854_775e18,
            -1e19,
            65.0,
            1234.5678,
            0.3,
            1e-7,
        ];
        match self.below(4) {
            0 => f64::from_bits(self.next()),
            1 => f64::from(i32::try_from(self.small()).unwrap()) / 8.0,
            _ => *self.pick(FLOATS),
        }
    }

    fn number(&mut self, small: bool) -> Json {
        let number = if small { self.small() } else { self.int() };
        let kind = if self.one_in(16) { "int64" } else { "int" };
        json!({ "t": kind, "v": number.to_string() })
    }

    fn map(&mut self, depth: usize) -> Json {
        let count = self.below(4);
        let entries = (0..count).map(|_| {
            let key = (*self.pick::<&str>(KEYS)).to_owned();
            (key, self.any(depth + 1))
        });
        json!({ "t": "map", "v": Json::Object(entries.collect()) })
    }

    fn list(&mut self, depth: usize) -> Json {
        let count = self.below(5);
        let items = (0..count).map(|_| self.any(depth + 1)).collect();
        json!({ "t": "list", "v": Json::Array(items) })
    }

    /// Any value.
    fn any(&mut self, depth: usize) -> Json {
        let most = if depth > 2 { 7 } else { 14 };
        match self.below(most) {
            0 => json!({ "t": "nil" }),
            1 => json!({ "t": "bool", "v": self.one_in(2) }),
            2 => self.number(false),
            3 => json!({ "t": "float", "v": format!("{:x}", self.float().to_bits()) }),
            4 if self.one_in(4) => {
                raw(self.pick::<&[u8]>(&[b"\xff".as_slice(), b"a\x80b", b"\xe3\x81", b"ok\xc3"]))
            }
            4..=6 => self.string(),
            7 | 8 => self.map(depth),
            9..=11 => self.list(depth),
            _ => match self.below(6) {
                0 => json!({ "t": "bytes", "v": "YWL/" }),
                1 => json!({ "t": "nilmap" }),
                2 => json!({ "t": "nillist" }),
                3 => json!({ "t": "strmap", "v": { "a": { "t": "str", "v": "x" } } }),
                4 => json!({ "t": "ints", "v": [3, 1, 2] }),
                _ => {
                    let items: Vec<String> = (0..self.below(4)).map(|_| self.text()).collect();
                    json!({ "t": "strs", "v": items })
                }
            },
        }
    }

    /// Texts that suit a function; most have none of their own.
    fn pool(name: &str, position: usize) -> Option<&'static [&'static str]> {
        let lower = name.to_lowercase();
        if lower.contains("regex") && name != "regexQuoteMeta" {
            return match position {
                0 => Some(PATTERNS),
                2 => Some(REPLACEMENTS),
                _ => None,
            };
        }
        match (name, position) {
            ("printf", 0) => Some(FORMATS),
            ("semver", 0) | ("semverCompare", 1) => Some(VERSIONS),
            ("semverCompare", 0) => Some(CONSTRAINTS),
            ("urlParse", 0) => Some(URLS),
            (
                "base" | "dir" | "clean" | "ext" | "isAbs" | "osBase" | "osDir" | "osClean" | "osExt"
                | "osIsAbs",
                _,
            ) => Some(PATHS),
            ("b64dec" | "b32dec", _) => Some(ENCODED),
            ("get" | "set" | "unset" | "hasKey" | "pick" | "omit", 1..) | ("pluck", 0) => Some(KEYS),
            ("typeIs" | "typeIsLike" | "kindIs", 0) => Some(&[
                "string",
                "int",
                "map",
                "slice",
                "float64",
                "[]interface {}",
                "map[string]interface {}",
                "<nil>",
                "invalid",
            ]),
            _ if lower.starts_with("duration") || name == "mustToDuration" => Some(DURATIONS),
            _ => None,
        }
    }

    fn arg(&mut self, entry: &Entry, position: usize, wanted: Type) -> Json {
        let name = entry.name;
        // Go would really make what these are asked for.
        let monstrous = matches!(name, "repeat" | "indent" | "nindent" | "until" | "untilStep" | "seq");
        if !monstrous && self.one_in(40) {
            return self.any(0);
        }
        if let Some(pool) = Self::pool(name, position)
            && (wanted != Type::Any || !self.one_in(3))
            && !self.one_in(10)
        {
            let mut text = (*self.pick::<&str>(pool)).to_owned();
            if name == "printf" && self.one_in(3) {
                text.push_str(self.pick::<&str>(pool));
            }
            return json!({ "t": "str", "v": text });
        }
        match wanted {
            Type::Bool => json!({ "t": "bool", "v": self.one_in(2) }),
            Type::Int | Type::Int64 => self.number(monstrous),
            Type::Float => json!({ "t": "float", "v": format!("{:x}", self.float().to_bits()) }),
            Type::Str | Type::Raw => {
                if wanted == Type::Raw && self.one_in(12) {
                    return raw(b"a\x80b c\xff");
                }
                self.string()
            }
            Type::Map => {
                if name == "urlJoin" {
                    return self.url_parts();
                }
                self.map(0)
            }
            Type::Any => match name {
                "eq" | "ne" | "lt" | "le" | "gt" | "ge" if !self.one_in(3) => match self.below(3) {
                    0 => self.number(true),
                    1 => json!({ "t": "float", "v": format!("{:x}", self.float().to_bits()) }),
                    _ => self.string(),
                },
                "dig" if position == 0 || self.one_in(2) => {
                    json!({ "t": "str", "v": self.pick::<&str>(KEYS) })
                }
                "dig" => self.map(0),
                "chunk" | "concat" | "first" | "last" | "rest" | "initial" | "reverse" | "uniq"
                | "compact" | "without" | "slice" | "append" | "prepend"
                    if !self.one_in(4) && (position == 0 || name == "chunk" || name == "concat") =>
                {
                    self.list(1)
                }
                "slice" => self.number(true),
                "index" if position > 0 => {
                    if self.one_in(2) {
                        self.number(true)
                    } else {
                        json!({ "t": "str", "v": self.pick::<&str>(KEYS) })
                    }
                }
                "addf" | "subf" | "mulf" | "divf" | "add1f" | "round" if self.one_in(2) => {
                    let float = f64::from(i32::try_from(self.below(100_000)).unwrap()) / 1_000.0;
                    json!({ "t": "float", "v": format!("{:x}", float.to_bits()) })
                }
                _ => self.any(0),
            },
            _ => json!({ "t": "nil" }),
        }
    }

    fn url_parts(&mut self) -> Json {
        let mut entries = serde_json::Map::new();
        let parts = [
            ("scheme", &["http", "", "mailto"][..]),
            ("host", &["h", "", "a b", "h:80", "[::1]"]),
            ("path", &["/p", "p", "", "a:b", "/ü/%", "*", "/a;b,c"]),
            ("query", &["", "a=b", "ü"]),
            ("opaque", &["", "", "", "o"]),
            ("fragment", &["", "f g", "!(*)'"]),
            ("userinfo", &["", "u:p", "u", "u:p:q", "a@b", "u%20:x", "%zz"]),
        ];
        for (key, texts) in parts {
            if !self.one_in(4) {
                let part = if self.one_in(30) {
                    self.any(1)
                } else {
                    json!({ "t": "str", "v": self.pick::<&str>(texts) })
                };
                entries.insert(key.to_owned(), part);
            }
        }
        json!({ "t": "map", "v": entries })
    }

    /// Arguments that fit, mostly.
    pub(super) fn args(&mut self, entry: &Entry) -> Vec<Json> {
        let params = entry.signature.params;
        let mut args: Vec<Json> =
            params.iter().enumerate().map(|(position, wanted)| self.arg(entry, position, *wanted)).collect();
        if let Some(variadic) = entry.signature.variadic {
            for _ in 0..self.below(4) {
                let arg = self.arg(entry, args.len(), variadic);
                args.push(arg);
            }
        }
        if self.one_in(100) {
            args.pop();
        }
        args
    }
}
