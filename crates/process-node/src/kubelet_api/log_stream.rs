//! Reading a container's log as `kubectl logs` asks for it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use futures::Stream;
use hyper::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, watch};

use crate::logs::Line;

/// How often a log is looked at for new lines.
const POLL: Duration = Duration::from_millis(100);
/// Lines are sent in pieces of about this size.
const CHUNK: usize = 32 * 1024;

/// The query of `PodLogOptions`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LogOptions {
    /// Goes on until the container ends.
    pub(super) follow: bool,
    /// The container's run before this one.
    pub(super) previous: bool,
    timestamps: bool,
    tail_lines: Option<usize>,
    since: Option<Timestamp>,
    limit_bytes: Option<usize>,
    stream: Option<&'static str>,
}

impl LogOptions {
    /// Reads a query. The error names the parameter.
    pub(super) fn parse(query: &HashMap<String, String>) -> Result<Self, String> {
        fn number<T: std::str::FromStr>(
            query: &HashMap<String, String>,
            name: &str,
        ) -> Result<Option<T>, String> {
            query
                .get(name)
                .map(|text| text.parse().map_err(|_| format!("{name}: {text:?} is not allowed\n")))
                .transpose()
        }
        let flag = |name: &str| Ok::<_, String>(number::<bool>(query, name)?.unwrap_or(false));
        let seconds = number::<u32>(query, "sinceSeconds")?;
        let since = match seconds {
            Some(seconds) => Some(Timestamp::now() - SignedDuration::from_secs(i64::from(seconds))),
            None => number(query, "sinceTime")?,
        };
        Ok(Self {
            follow: flag("follow")?,
            previous: flag("previous")?,
            timestamps: flag("timestamps")?,
            tail_lines: number(query, "tailLines")?,
            since,
            limit_bytes: number(query, "limitBytes")?,
            stream: match query.get("stream").map(String::as_str) {
                Some("Stdout") => Some("stdout"),
                Some("Stderr") => Some("stderr"),
                _ => None,
            },
        })
    }

    fn selects(&self, line: &Line<'_>) -> bool {
        let in_time =
            self.since.is_none_or(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time >= since));
        in_time && self.stream.is_none_or(|stream| stream == line.stream)
    }
}

/// The log at `path`; with `ended`, until that turns true and everything is read.
pub(super) fn lines(
    path: PathBuf,
    options: LogOptions,
    ended: Option<watch::Receiver<bool>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(4);
    tokio::spawn(async move {
        if let Err(error) = send(path, options, ended, &sender).await {
            // A reader that is gone needs no error.
            let _ = sender.send(Err(error)).await;
        }
    });
    futures::stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) })
}

async fn send(
    path: PathBuf,
    options: LogOptions,
    mut ended: Option<watch::Receiver<bool>>,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    if let Some(wanted) = options.tail_lines {
        skip_to_tail(&mut file, &options, wanted)?;
    }
    let mut formatter = Formatter { options, sent: 0, begins: true };
    loop {
        // Asked before reading: what is written before the end is still read.
        let is_over = ended.as_ref().is_none_or(|ended| *ended.borrow());
        while let Some(chunk) = formatter.chunk(&mut file)? {
            if sender.send(Ok(chunk)).await.is_err() {
                return Ok(());
            }
            if formatter.is_full() {
                return Ok(());
            }
        }
        if is_over {
            return Ok(());
        }
        if let Some(ended) = &mut ended {
            tokio::select! {
                _ = ended.changed() => {}
                () = tokio::time::sleep(POLL) => {}
                () = sender.closed() => return Ok(()),
            }
        }
    }
}

/// Moves on to the last `wanted` lines that are selected.
fn skip_to_tail(file: &mut BufReader<File>, options: &LogOptions, wanted: usize) -> io::Result<()> {
    let mut starts = std::collections::VecDeque::new();
    let mut at = 0_u64;
    let mut begins = true;
    let mut start = 0;
    let mut bytes = Vec::new();
    while file.read_until(b'\n', &mut bytes)? > 0 {
        // A line without its end is still being written.
        if let Some(line) = bytes.strip_suffix(b"\n").and_then(Line::parse)
            && options.selects(&line)
        {
            if begins {
                start = at;
            }
            begins = line.whole;
            if line.whole {
                starts.push_back(start);
                if starts.len() > wanted {
                    starts.pop_front();
                }
            }
        }
        at += bytes.len() as u64;
        bytes.clear();
    }
    let from = if wanted == 0 { at } else { starts.front().copied().unwrap_or(at) };
    file.seek(SeekFrom::Start(from)).map(drop)
}

/// Turns stored lines into what the user reads.
struct Formatter {
    options: LogOptions,
    sent: usize,
    /// Whether the next piece begins a line.
    begins: bool,
}

impl Formatter {
    fn is_full(&self) -> bool {
        self.options.limit_bytes.is_some_and(|limit| self.sent >= limit)
    }

    /// The next piece of output; none if there is nothing more for now.
    fn chunk(&mut self, file: &mut BufReader<File>) -> io::Result<Option<Bytes>> {
        let mut output = Vec::new();
        let mut bytes = Vec::new();
        while output.len() < CHUNK {
            let place = file.stream_position()?;
            file.read_until(b'\n', &mut bytes)?;
            if bytes.pop() != Some(b'\n') {
                // The writer is in the middle of a line: it is read again when it is whole.
                file.seek(SeekFrom::Start(place))?;
                break;
            }
            if let Some(line) = Line::parse(&bytes)
                && self.options.selects(&line)
            {
                if self.options.timestamps && self.begins {
                    output.extend_from_slice(line.time.as_bytes());
                    output.push(b' ');
                }
                output.extend_from_slice(line.text);
                if line.whole {
                    output.push(b'\n');
                }
                self.begins = line.whole;
            }
            bytes.clear();
        }
        if let Some(limit) = self.options.limit_bytes {
            output.truncate(limit.saturating_sub(self.sent));
        }
        self.sent += output.len();
        Ok(if output.is_empty() { None } else { Some(Bytes::from(output)) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures::StreamExt as _;

    use super::*;

    fn stored(second: u32, stream: &str, tag: char, text: &str) -> String {
        format!("2026-01-02T03:04:{second:02}.000000000Z {stream} {tag} {text}\n")
    }

    async fn read(name: &str, query: &[(&str, &str)]) -> String {
        let path = std::env::temp_dir().join(format!("process-node-stream-{name}-{}", std::process::id()));
        let text = stored(1, "stdout", 'F', "one")
            + &stored(2, "stderr", 'F', "two")
            + &stored(3, "stdout", 'P', "thr")
            + &stored(3, "stdout", 'F', "ee")
            + "2026-01-02T03:04:04.000000000Z stdout F cut";
        std::fs::write(&path, text).unwrap();
        let query = query.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let chunks = lines(path.clone(), LogOptions::parse(&query).unwrap(), None).collect::<Vec<_>>().await;
        std::fs::remove_file(path).unwrap();
        let bytes: Vec<u8> = chunks.into_iter().flat_map(|chunk| chunk.unwrap().to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn options_select_and_shape() {
        assert_eq!(read("all", &[]).await, "one\ntwo\nthree\n");
        assert_eq!(read("tail", &[("tailLines", "2")]).await, "two\nthree\n");
        assert_eq!(read("none", &[("tailLines", "0")]).await, "");
        assert_eq!(read("since", &[("sinceTime", "2026-01-02T03:04:03Z")]).await, "three\n");
        assert_eq!(read("limit", &[("limitBytes", "5")]).await, "one\nt");
        assert_eq!(read("stream", &[("stream", "Stderr")]).await, "two\n");
        let stamped = read("stamps", &[("timestamps", "true"), ("tailLines", "1")]).await;
        assert_eq!(stamped, "2026-01-02T03:04:03.000000000Z three\n");
    }

    #[test]
    fn bad_parameters_are_named() {
        let query = [("tailLines".to_owned(), "many".to_owned())].into();
        assert!(LogOptions::parse(&query).unwrap_err().starts_with("tailLines"));
    }

    #[tokio::test]
    async fn following_sees_lines_that_come_later() {
        let path = std::env::temp_dir().join(format!("process-node-follow-{}", std::process::id()));
        std::fs::write(&path, stored(1, "stdout", 'F', "early")).unwrap();
        let (end, ended) = watch::channel(false);
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = Box::pin(lines(path.clone(), options, Some(ended)));
        assert_eq!(stream.next().await.unwrap().unwrap(), "early\n");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(stored(2, "stdout", 'F', "late").as_bytes()).unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "late\n");
        end.send(true).unwrap();
        assert!(stream.next().await.is_none());
        std::fs::remove_file(path).unwrap();
    }
}
