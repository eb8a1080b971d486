//! Which writes did somebody make? Answered from kube-apiserver's audit log.
//!
//! A *write* is any mutating request on a resource: create, update, patch, delete, deletecollection. That
//! includes applies that change nothing, refused requests, and Events. Not writes are
//! - dry runs, told by the query parameter `dryRun` (a `delete` that hides it in its body counts);
//! - the reviews of `authentication.k8s.io` and `authorization.k8s.io`: questions that are never stored;
//! - renewals of one Lease that the caller names: an update or patch of it that did not create it.
//!
//! Nothing is missed and nothing is taken twice, however busy the server is. kube-apiserver writes a
//! `RequestReceived` line before it carries a request out and a `ResponseComplete` line after (log backend,
//! mode `blocking`, the default). A mark and a query each send a request of their own and wait for *its*
//! `RequestReceived` line: by then every request that was answered before has its first line in the file.
//! So a request belongs to the interval in which it was received.

mod entry;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

pub use entry::Write;
use entry::{Entry, Writes};

/// The audit policy that the queries need: every mutating request, at level Metadata, when it comes in and
/// when it is done. Reads and paths that are no resource are left out.
pub const POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  nonResourceURLs: ['*']
- level: Metadata
";

/// How long a line may take to appear: it is written before the answer is sent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests under way may take to complete before they are reported without a code.
const COMPLETION: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(5);

const SENTINEL: &str = "audit-sentinel-";

/// The arguments that make kube-apiserver write the log, given where it goes and where [`POLICY`] lies.
///
/// Rotation would lose marks, and cannot be switched off: a size of 0 stands for the 100 MB of the library that
/// writes the file (lumberjack). So the size, in MB, is one that no run reaches.
pub fn apiserver_args(log: &Path, policy: &Path) -> [String; 3] {
    [
        format!("--audit-log-path={}", log.display()),
        format!("--audit-policy-file={}", policy.display()),
        "--audit-log-maxsize=1000000".to_owned(),
    ]
}

/// The user name of a ServiceAccount.
pub fn service_account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The audit log of one API server.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A moment in an audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    offset: u64,
}

/// Whose writes are asked for, and which of them don't count.
#[derive(Clone, Debug)]
pub struct Filter {
    user: String,
    lease: Option<(String, String)>,
}

impl Filter {
    /// All writes of the user of this exact name; see [`service_account`]. One who is impersonated is meant
    /// rather than the one who impersonates.
    pub fn user(name: &str) -> Self {
        Self { user: name.to_owned(), lease: None }
    }

    /// Leaves out renewals of this Lease.
    #[must_use]
    pub fn except_renewals_of(mut self, namespace: &str, lease: &str) -> Self {
        self.lease = Some((namespace.to_owned(), lease.to_owned()));
        self
    }

    fn selects(&self, write: &Write) -> bool {
        let renewal =
            self.lease.as_ref().is_some_and(|(namespace, name)| write.is_renewal_of(namespace, name));
        write.user == self.user && !renewal
    }
}

impl AuditLog {
    /// The log that the API server writes to this file, as [`apiserver_args`] has it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Marks the present moment. The client needs a right to delete ConfigMaps in `default`, and must not
    /// go through a fault proxy with rules that hit it.
    ///
    /// Fails where the sentinel's line does not appear within ten seconds.
    pub async fn mark(&self, client: &kube::Client) -> anyhow::Result<Mark> {
        // The file is there once the server has written its first line, which may be the sentinel's.
        let length = std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len());
        let sentinel = place_sentinel(client).await?;
        // Of a line that is being written the file may hold the beginning: what there is from the last byte
        // to the next line's start is skipped.
        let mut tail = Tail { path: &self.path, offset: length.saturating_sub(1), partial: length > 0 };
        tail.until(&sentinel, |_| {}).await?;
        Ok(Mark { offset: tail.offset })
    }

    /// The writes since the mark that the filter selects, in the order in which the server received them.
    /// Those still under way are among them, without a code where they take longer than two seconds.
    ///
    /// The client is used as in [`AuditLog::mark`]. Fails as that does, and where the log has shrunk.
    pub async fn writes_since(
        &self,
        client: &kube::Client,
        mark: Mark,
        filter: &Filter,
    ) -> anyhow::Result<Vec<Write>> {
        let mut tail = Tail { path: &self.path, offset: mark.offset, partial: false };
        let sentinel = place_sentinel(client).await?;
        let mut writes = Writes::default();
        tail.until(&sentinel, |entry| writes.add(entry)).await?;
        let deadline = Instant::now() + COMPLETION;
        while writes.under_way() && Instant::now() < deadline {
            tail.read(|entry| {
                writes.complete(entry);
                false
            })?;
            sleep(POLL).await;
        }
        Ok(writes.into_iter().filter(|write| filter.selects(write)).collect())
    }

    /// Waits until nothing that the filter selects has been written for `pause`, and marks its beginning: what a change set
    /// off has come to its end, Events included, however slow the machine is.
    ///
    /// The client is used as in [`AuditLog::mark`].
    ///
    /// # Errors
    /// When writes have not ended within `limit`; the error names the last of them.
    pub async fn quiet(
        &self,
        client: &kube::Client,
        filter: &Filter,
        pause: Duration,
        limit: Duration,
    ) -> anyhow::Result<Mark> {
        let deadline = Instant::now() + limit;
        loop {
            let mark = self.mark(client).await?;
            sleep(pause).await;
            let writes = self.writes_since(client, mark, filter).await?;
            let Some(last) = writes.last() else { return Ok(mark) };
            if Instant::now() > deadline {
                bail!("audit: writes have not ended within {} s; the last is {last:?}", limit.as_secs());
            }
        }
    }
}

/// Sends a request that changes nothing, and gives the name by which its line is known: the dry run of a
/// deletion of a ConfigMap that does not exist. It ends in 404 before any webhook is called.
async fn place_sentinel(client: &kube::Client) -> anyhow::Result<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Test processes of one run share a log.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let name = format!("{SENTINEL}{}-{since}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let path = format!("/api/v1/namespaces/default/configmaps/{name}?dryRun=All");
    let request = http::Request::delete(path).body(Vec::new()).context("audit: sentinel request")?;
    match client.request_text(request).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(name),
        Ok(answer) => {
            bail!("audit: the API server deleted ConfigMap default/{name}, which nobody made: {answer}")
        }
        Err(error) => Err(error).context("audit: cannot place a mark in the audit log"),
    }
}

/// A place in the log from which it is read on.
struct Tail<'a> {
    path: &'a Path,
    offset: u64,
    /// The offset is not known to be the start of a line.
    partial: bool,
}

impl Tail<'_> {
    /// Reads up to and with the first line of the sentinel, and hands what comes before it to `each`.
    async fn until(&mut self, sentinel: &str, mut each: impl FnMut(&Entry<'_>)) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.read(|entry| {
                let found = entry.is_named(sentinel);
                if !found {
                    each(entry);
                }
                found
            })?;
            if found {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "audit: no line for ConfigMap default/{sentinel} in {} after {PATIENCE:?}: is this the log \
                     of the API server that the client talks to, and has it the test bed's audit policy?",
                    self.path.display()
                );
            }
            sleep(POLL).await;
        }
    }

    /// Hands each whole line to `each` until that says stop or there is no more, and tells whether it said so.
    fn read(&mut self, mut each: impl FnMut(&Entry<'_>) -> bool) -> anyhow::Result<bool> {
        let context = || format!("audit: cannot read {}", self.path.display());
        let mut file = match File::open(self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.offset == 0 => {
                return Ok(false);
            }
            Err(error) => return Err(error).with_context(context),
        };
        if file.metadata().with_context(context)?.len() < self.offset {
            bail!(
                "audit: {} has shrunk since the mark: it must not be rotated or truncated",
                self.path.display()
            );
        }
        file.seek(SeekFrom::Start(self.offset)).with_context(context)?;
        let mut lines = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).with_context(context)?;
            if !line.ends_with(b"\n") {
                // The rest of the line is still to be written.
                return Ok(false);
            }
            let start = self.offset;
            self.offset += length as u64;
            if std::mem::take(&mut self.partial) {
                continue;
            }
            let entry = Entry::parse(&line)
                .with_context(|| format!("audit: {} at byte {start}", self.path.display()))?;
            if each(&entry) {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn line(id: &str, stage: &str, name: &str) -> String {
        format!(
            r#"{{"kind":"Event","auditID":"{id}","stage":"{stage}","requestURI":"/api/v1/namespaces/a/configmaps/{name}","verb":"update","user":{{"username":"u"}},"objectRef":{{"resource":"configmaps","namespace":"a","name":"{name}","apiVersion":"v1"}},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z"}}"#
        )
    }

    #[tokio::test]
    async fn reads_whole_lines_up_to_the_sentinel() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let (first, second) = (line("1", "RequestReceived", "x"), line("2", "RequestReceived", "stop"));
        let (start, rest) = second.split_at(40);
        write!(file, "{first}\n{start}").unwrap();
        let path = file.path().to_owned();
        let mut tail = Tail { path: &path, offset: 0, partial: false };
        let mut names = Vec::new();
        let mut note = |entry: &Entry<'_>| {
            names.push(entry.is_named("x"));
            false
        };
        assert!(!tail.read(&mut note).unwrap());
        assert_eq!(tail.offset, first.len() as u64 + 1, "half a line is left for later");
        writeln!(file, "{rest}\n{}", line("3", "RequestReceived", "after")).unwrap();
        tail.until("stop", |entry| names.push(entry.is_named("stop"))).await.unwrap();
        assert_eq!(names, [true], "the sentinel itself and what follows are not handed out");
        assert_eq!(tail.offset, (first.len() + second.len()) as u64 + 2);

        // As a mark does that comes while the second line is being written.
        let mut tail = Tail { path: &path, offset: (first.len() + start.len()) as u64, partial: true };
        assert!(tail.read(|entry| entry.is_named("after")).unwrap());
    }

    #[test]
    fn a_rotated_log_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tail = |path, offset| Tail { path, offset, partial: false };
        let error = tail(file.path(), 10).read(|_| false).unwrap_err();
        assert!(error.to_string().contains("shrunk"), "{error}");
        let absent = Path::new("/nonexistent/audit.log");
        let error = tail(absent, 10).read(|_| false).unwrap_err();
        assert!(error.to_string().contains("cannot read"), "{error}");
        assert!(!tail(absent, 0).read(|_| true).unwrap(), "the server has yet to write its first line");
    }

    #[test]
    fn the_policy_is_a_policy() {
        let policy: serde_json::Value = serde_saphyr::from_str(POLICY).unwrap();
        assert_eq!((&policy["kind"], &policy["apiVersion"]), (&"Policy".into(), &"audit.k8s.io/v1".into()));
        assert_eq!(policy["rules"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn filters_are_by_user_and_lease() {
        let mut writes = Writes::default();
        let text = line("1", "RequestReceived", "x");
        writes.add(&Entry::parse(text.as_bytes()).unwrap());
        let write = writes.into_iter().next().unwrap();
        assert!(Filter::user("u").selects(&write));
        assert!(Filter::user("u").except_renewals_of("a", "x").selects(&write), "a ConfigMap is no Lease");
        assert!(!Filter::user("u2").selects(&write));
        assert_eq!(service_account("ns", "sa"), "system:serviceaccount:ns:sa");
    }
}
