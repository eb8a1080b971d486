//! The comparison with Go: random templates give the same output or error.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use super::data::{Random, data};
use super::functions::{context, on_stack};
use super::generator::sources;
use crate::Failure;
use crate::template::{Set, execute};
use crate::value::{Ctx, Value};

/// Go's text/template as a process that answers line by line.
struct Oracle {
    process: Child,
    answers: BufReader<std::process::ChildStdout>,
    directory: PathBuf,
}

impl Oracle {
    /// Builds and starts it, or `None` where there is no Go.
    fn start(test: &str) -> Option<Self> {
        Command::new("go").arg("version").stdout(Stdio::null()).status().ok()?;
        let directory =
            std::env::temp_dir().join(format!("chart-template-oracle-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let program = directory.join("oracle");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/template");
        let mut build = Command::new("go");
        build.args(["build", "-o"]).arg(&program).arg(".").current_dir(source);
        build.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOWORK", "off");
        assert!(build.status().unwrap().success(), "the oracle does not build");
        let mut process =
            Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Some(Self { process, answers, directory })
    }

    /// The answers to all requests, in order.
    fn ask(&mut self, requests: Vec<String>) -> Vec<Result<String, String>> {
        let mut input = self.process.stdin.take().unwrap();
        let count = requests.len();
        let writer = std::thread::spawn(move || {
            for request in requests {
                writeln!(input, "{request}").unwrap();
            }
        });
        let answers: Vec<_> = (&mut self.answers).lines().map(|line| answer(&line.unwrap())).collect();
        writer.join().unwrap();
        assert_eq!(answers.len(), count, "the oracle ended early");
        answers
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A JSON string.
pub(super) fn json_string(text: &str) -> String {
    let mut json = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => write!(json, "\\u{:04x}", u32::from(c)).unwrap(),
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// `{"out":"…"}` or `{"err":"…"}`.
fn answer(line: &str) -> Result<String, String> {
    let text = line.get(8..line.len() - 2).unwrap();
    let mut chars = text.chars();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next().unwrap() {
            'n' => plain.push('\n'),
            't' => plain.push('\t'),
            'r' => plain.push('\r'),
            'b' => plain.push('\x08'),
            'f' => plain.push('\x0c'),
            'u' => {
                let code: String = chars.by_ref().take(4).collect();
                plain.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
            }
            c => plain.push(c),
        }
    }
    if line.starts_with("{\"out\":") { Ok(plain) } else { Err(plain) }
}

fn request(sources: &[(String, String)], data: &str) -> String {
    let sources: Vec<_> = sources
        .iter()
        .map(|(name, text)| format!("{{\"name\":{},\"text\":{}}}", json_string(name), json_string(text)))
        .collect();
    format!("{{\"sources\":[{}],\"data\":{data}}}", sources.join(","))
}

fn render(ctx: &mut Ctx, sources: &[(String, String)], data: Value) -> Result<String, Failure> {
    let mut set = Set::clone(&ctx.set);
    for (name, text) in sources {
        set.parse(name, text)?;
    }
    ctx.set = Rc::new(set);
    execute(ctx, &sources[0].0, data)
}

#[test]
fn random_templates_give_what_go_gives() {
    on_stack(8 << 20, compare);
}

fn names_function_of_go(error: &str) -> bool {
    ["eq", "ne", "lt", "le", "gt", "ge", "js", "html", "index", "slice", "println", "urlquery"]
        .iter()
        .any(|name| error.ends_with(&format!("function \"{name}\" not defined")))
}

fn compare() {
    let Some(mut oracle) = Oracle::start("random") else {
        eprintln!("skipped: there is no Go here");
        return;
    };
    let count = std::env::var("CHART_SEEDS").map_or(2_000, |count| count.parse().unwrap());
    let (mut requests, mut ours, mut skipped) = (Vec::new(), Vec::new(), 0);
    for seed in 0..count {
        let mut random = Random(seed);
        let mut ctx = context();
        let sources = sources(&mut random);
        let (value, json) = data(&mut random, &mut ctx);
        match render(&mut ctx, &sources, value) {
            // What breaks a template can also make it call itself without end, which Go does not survive.
            Err(Failure::Limit { .. }) => skipped += 1,
            // Nor are the other functions of Go here, whose names come about by chance.
            Err(error) if names_function_of_go(&error.to_string()) => skipped += 1,
            result => {
                requests.push(request(&sources, &json));
                ours.push(result.map_err(|error| error.to_string()));
            }
        }
    }
    let answers = oracle.ask(requests.clone());
    let rendered = answers.iter().filter(|answer| answer.is_ok()).count();
    let mut different = 0;
    for (seed, ((request, ours), theirs)) in requests.iter().zip(&ours).zip(&answers).enumerate() {
        if ours != theirs {
            different += 1;
            if different <= 10 {
                eprintln!("seed {seed}: {request}\n  ours   {ours:?}\n  theirs {theirs:?}\n");
            }
        }
    }
    let compared = ours.len();
    eprintln!("{compared} compared, of which {rendered} gave output; {skipped} skipped");
    assert_eq!(different, 0, "templates that differ");
}
