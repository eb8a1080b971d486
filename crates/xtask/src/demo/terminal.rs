//! What a person at a terminal would type, and what they would see.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::Request;
use testbed::command::output;
use testbed::curl::{self, Reply};
use testbed::{Session, paths};

/// How long an answer is waited for. istiod pushes a change within moments, not at once.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long one waits without a word.
const SILENCE: Duration = Duration::from_secs(1);

pub(super) fn title(text: &str) {
    println!("\n=== {text}");
}

/// The cluster, and the gateway once it has an address.
pub(super) struct Terminal<'s> {
    pub(super) session: &'s Session,
}

impl Terminal<'_> {
    /// Runs kubectl and shows the command with its answer.
    pub(super) fn kubectl(&self, args: &[&str]) -> Result<String> {
        let words = args.iter().map(|word| {
            if word.contains(['{', ' ', '*']) { format!("'{word}'") } else { (*word).to_owned() }
        });
        println!("$ kubectl {}", words.collect::<Vec<_>>().join(" "));
        let text = output(self.session.kubectl(args), None)?;
        print!("{text}");
        if !text.ends_with('\n') {
            println!();
        }
        Ok(text)
    }

    /// Applies a file of the repository.
    pub(super) fn apply(&self, file: &str) -> Result<()> {
        println!("$ kubectl apply -f {file}");
        let path = paths::repo_root().join(file).display().to_string();
        print!("{}", output(self.session.kubectl(["apply", "-f", &path]), None)?);
        Ok(())
    }

    /// Shows a file of the repository.
    pub(super) fn show(file: &str) -> Result<()> {
        let path = paths::repo_root().join(file);
        print!("{}", std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        println!("---");
        Ok(())
    }

    /// The gateway's address.
    pub(super) fn gateway(&self) -> Result<Gateway> {
        let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
        let service = ["-n", "istio-system", "get", "service", "istio-ingressgateway", "-o", path];
        let ip = output(self.session.kubectl(service), None)?;
        let ip = ip.trim().parse().with_context(|| format!("the gateway's address: {ip:?}"))?;
        Ok(Gateway { address: SocketAddr::new(ip, 80) })
    }
}

/// Where requests are sent.
pub(super) struct Gateway {
    address: SocketAddr,
}

impl Gateway {
    /// Asks until the expected status comes, and shows the command with that answer.
    pub(super) async fn curl(
        &self,
        host: &str,
        path: &str,
        headers: &[&str],
        expected: u16,
    ) -> Result<Reply> {
        self.until(host, path, headers, expected, |_| false).await
    }

    /// The same for a protected path without a login: an answer that lets it in, even once, fails.
    pub(super) async fn curl_refused(
        &self,
        host: &str,
        path: &str,
        headers: &[&str],
        expected: u16,
    ) -> Result<Reply> {
        self.until(host, path, headers, expected, |status| (200..300).contains(&status)).await
    }

    async fn until(
        &self,
        host: &str,
        path: &str,
        headers: &[&str],
        expected: u16,
        forbidden: impl Fn(u16) -> bool,
    ) -> Result<Reply> {
        let more: Vec<String> = headers.iter().map(|header| format!(" -H '{header}'")).collect();
        let more = more.concat();
        println!("$ curl -H 'Host: {host}'{more} 'http://{}{path}'", self.address.ip());
        let (begun, mut told) = (Instant::now(), Instant::now());
        loop {
            let reply = self.ask(host, path, headers).await;
            match reply {
                Ok(reply) if forbidden(reply.status) => {
                    bail!("http://{host}{path} let somebody in without a login: {reply:?}")
                }
                Ok(reply) if reply.status == expected => {
                    let body = reply.body.trim();
                    println!("{} {}", reply.status, if body.is_empty() { "(no body)" } else { body });
                    return Ok(reply);
                }
                other if begun.elapsed() > PATIENCE => {
                    bail!("http://{host}{path} must answer {expected}, and last gave {other:?}")
                }
                other => {
                    if told.elapsed() > SILENCE {
                        let now =
                            other.map_or_else(|error| format!("{error:#}"), |reply| reply.status.to_string());
                        println!("  (waiting for {expected}; now {now})");
                        told = Instant::now();
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn ask(&self, host: &str, path: &str, headers: &[&str]) -> Result<Reply> {
        let mut request = Request::get(path).header("host", host);
        for header in headers {
            let (name, value) = header.split_once(": ").with_context(|| format!("header {header:?}"))?;
            request = request.header(name, value);
        }
        curl::request(self.address, request.body(String::new())?).await
    }
}
