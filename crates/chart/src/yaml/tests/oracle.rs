//! Helm's own libraries, asked through a program in Go.

use std::fmt::Debug;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::value::{Ctx, Value};
use crate::yaml::base64;
use crate::{Failure, Limits, json};

/// What a library makes of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Out(String),
    Err(String),
    /// The library fails in itself, or answers by chance.
    None,
}

impl From<Result<String, Failure>> for Answer {
    fn from(result: Result<String, Failure>) -> Self {
        match result {
            Ok(text) => Self::Out(text),
            Err(Failure::Error(message)) => Self::Err(message.to_string()),
            Err(limit @ Failure::Limit { .. }) => Self::Err(format!("LIMIT {limit}")),
        }
    }
}

/// The program, built once.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/yaml");
        let program = std::env::current_exe().unwrap().with_file_name("oracle-yaml");
        let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(".");
        let status = { built }.current_dir(source).status().unwrap();
        assert!(status.success(), "the oracle does not build");
        program
    })
}

/// Asks for each text what an operation makes of it.
pub(crate) fn ask(op: &str, texts: &[Vec<u8>]) -> Vec<Answer> {
    let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let questions: String = texts
        .iter()
        .map(|text| format!("{{\"op\":\"{op}\",\"in\":\"{}\"}}\n", base64::encode(text)))
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(questions.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let mut ctx = Ctx::new(Limits::default());
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<_> = answers.lines().map(|line| answer(&mut ctx, line)).collect();
    assert_eq!(answers.len(), texts.len());
    answers
}

fn answer(ctx: &mut Ctx, line: &str) -> Answer {
    let Value::Map(map) = json::read(ctx, line).unwrap() else { return Answer::None };
    let text = |name: &str| match ctx.heap.get(map, name) {
        Some(Value::Str(text)) => Some(String::from_utf8(base64::decode(text.as_bytes()).unwrap()).unwrap()),
        _ => None,
    };
    if ctx.heap.map(map).entries.contains_key("panic") || ctx.heap.map(map).entries.contains_key("skip") {
        return Answer::None;
    }
    text("err").map_or_else(|| Answer::Out(text("out").unwrap_or_default()), Answer::Err)
}

/// Asserts that an operation makes of each text what this crate does.
pub(crate) fn compare(op: &str, texts: &[Vec<u8>], ours: impl Fn(&[u8]) -> Answer) {
    let mut wrong = 0;
    let mut errors = 0;
    let mut skipped = 0;
    for (text, theirs) in texts.iter().zip(ask(op, texts)) {
        let ours = ours(text);
        match theirs {
            Answer::None => skipped += 1,
            Answer::Err(_) => errors += 1,
            Answer::Out(_) => {}
        }
        if theirs != Answer::None && theirs != ours {
            wrong += 1;
            if wrong <= 12 {
                let text = String::from_utf8_lossy(text);
                eprintln!("{op} of {text:?}\n  Go:   {theirs:?}\n  Rust: {ours:?}");
            }
        }
    }
    eprintln!(
        "{op}: {} compared, of which {errors} errors; {skipped} skipped, {wrong} differ",
        texts.len() - skipped
    );
    assert_eq!(wrong, 0, "{op}");
}

/// How many cases a differential test has.
pub(crate) fn seeds() -> u64 {
    std::env::var("CHART_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000)
}
