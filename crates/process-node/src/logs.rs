//! Container logs in the format of the Container Runtime Interface, one line each:
//! `2026-01-02T03:04:05.678901234Z stdout F text`. `P` in place of `F` marks a piece of a longer line.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::task::JoinHandle;

/// Longer lines are stored in pieces, as container runtimes do.
const PIECE: usize = 16 * 1024;

/// Stores what `stdout` and `stderr` bring in `path`, until both end.
pub(crate) fn collect(
    path: &Path,
    stdout: impl AsyncRead + Send + Unpin + 'static,
    stderr: impl AsyncRead + Send + Unpin + 'static,
) -> anyhow::Result<JoinHandle<()>> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("open the log {}", path.display()))?;
    let file = Arc::new(Mutex::new(file));
    let output = copy("stdout", stdout, Arc::clone(&file));
    let errors = copy("stderr", stderr, file);
    Ok(tokio::spawn(async move {
        tokio::join!(output, errors);
    }))
}

async fn copy(stream: &'static str, source: impl AsyncRead + Unpin, file: Arc<Mutex<File>>) {
    let mut source = BufReader::with_capacity(PIECE, source);
    let mut piece = Vec::new();
    loop {
        let (taken, ended) = match source.fill_buf().await {
            Ok([]) | Err(_) => break,
            Ok(bytes) => match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => (take(&mut piece, &bytes[..at]) + 1, true),
                None => (take(&mut piece, bytes), false),
            },
        };
        source.consume(taken);
        if ended || piece.len() >= PIECE {
            // A full disk must not end the container; its output is lost, which its reader will notice.
            let _ = write(&file, stream, ended, &piece);
            piece.clear();
        }
    }
    if !piece.is_empty() {
        let _ = write(&file, stream, true, &piece);
    }
}

fn take(piece: &mut Vec<u8>, bytes: &[u8]) -> usize {
    piece.extend_from_slice(bytes);
    bytes.len()
}

fn write(file: &Mutex<File>, stream: &str, whole: bool, text: &[u8]) -> io::Result<()> {
    let tag = if whole { 'F' } else { 'P' };
    let mut line = format!("{:.9} {stream} {tag} ", Timestamp::now()).into_bytes();
    line.extend_from_slice(text);
    line.push(b'\n');
    // One write for each line, so that a reader never sees half of one as long as the file system is kind.
    file.lock().map_err(|_| io::Error::other("the log is in disorder"))?.write_all(&line)
}

/// One stored line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// When it was written, as text in RFC 3339.
    pub(crate) time: &'a str,
    /// `stdout` or `stderr`.
    pub(crate) stream: &'a str,
    /// Whether it ends a line of the program's output.
    pub(crate) whole: bool,
    /// What the program wrote.
    pub(crate) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a stored line, without its newline.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = bytes.splitn(4, |byte| *byte == b' ');
        let mut field = || fields.next();
        let time = std::str::from_utf8(field()?).ok()?;
        let stream = std::str::from_utf8(field()?).ok()?;
        let whole = field()? == b"F";
        Some(Self { time, stream, whole, text: field()? })
    }
}

/// The last lines of a log as plain text, at most `max_lines` and `max_bytes` of them. What
/// `terminationMessagePolicy: FallbackToLogsOnError` shows.
pub(crate) fn tail(path: &Path, max_lines: usize, max_bytes: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let mut text = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter_map(Line::parse) {
        text.extend_from_slice(line.text);
        if line.whole {
            text.push(b'\n');
        }
    }
    let starts =
        text.iter().enumerate().rev().skip(1).filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let from_lines = starts.take(max_lines).nth(max_lines.saturating_sub(1)).unwrap_or(0);
    let from = from_lines.max(text.len().saturating_sub(max_bytes));
    String::from_utf8_lossy(&text[from..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("process-node-log-{name}-{}", std::process::id()))
    }

    #[tokio::test]
    async fn output_is_stored_in_lines_and_pieces() {
        let path = log("pieces");
        let long = "x".repeat(PIECE + 5);
        let stdout = format!("one\n\n{long}\nlast").into_bytes();
        collect(&path, io::Cursor::new(stdout), io::Cursor::new(b"bad\n".to_vec())).unwrap().await.unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').filter_map(Line::parse).collect();
        let of = |stream| lines.iter().filter(move |line| line.stream == stream);
        let stdout: Vec<_> = of("stdout").map(|line| (line.whole, line.text.len())).collect();
        let whole: usize = stdout.iter().map(|(_, length)| length).sum();
        assert_eq!(whole, 3 + PIECE + 5 + 4);
        assert_eq!(stdout.first(), Some(&(true, 3)));
        assert_eq!(stdout.last(), Some(&(true, 4)));
        assert_eq!(stdout.iter().filter(|(whole, _)| *whole).count(), 4);
        assert_eq!(of("stderr").map(|line| line.text).collect::<Vec<_>>(), [b"bad"]);
        assert!(lines.iter().all(|line| line.time.parse::<Timestamp>().is_ok()));
    }

    #[test]
    fn tails_are_cut_by_lines_and_bytes() {
        let path = log("tail");
        let line = |text: &str| format!("2026-01-02T03:04:05.000000000Z stdout F {text}\n");
        std::fs::write(&path, line("one") + &line("two") + &line("three")).unwrap();
        assert_eq!(tail(&path, 2, 100), "two\nthree\n");
        assert_eq!(tail(&path, 9, 100), "one\ntwo\nthree\n");
        assert_eq!(tail(&path, 9, 6), "three\n");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(tail(&path, 9, 9), "");
    }
}
