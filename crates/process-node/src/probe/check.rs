//! A single check or call, for probes and lifecycle hooks alike.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::net::{TcpStream, lookup_host};

use super::{grpc, http};
use crate::container::exec::ExecTarget;

/// Where checks go unless they say otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The pod's address.
    pub(crate) address: IpAddr,
    /// The container for commands.
    pub(crate) target: Option<ExecTarget>,
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// A command in the container succeeds.
    Exec(Vec<String>),
    /// An HTTP GET is answered with a code from 200 to 399. Redirects count as success and are not followed.
    Http(HttpCheck),
    /// A connection is accepted.
    Tcp {
        /// Another host than the pod.
        host: Option<String>,
        /// The port.
        port: u16,
    },
    /// `grpc.health.v1.Health/Check` answers `SERVING`.
    Grpc {
        /// The port.
        port: u16,
        /// The service asked about.
        service: String,
    },
    /// Time passes. Hooks only.
    Sleep(Duration),
}

/// An HTTP request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpCheck {
    /// Whether by TLS. Certificates are not verified, as kubelet does not.
    pub(crate) tls: bool,
    /// Another host than the pod.
    pub(crate) host: Option<String>,
    /// The port.
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) path: String,
    /// Headers in order.
    pub(crate) headers: Vec<(String, String)>,
}

/// The four ways that probes and hooks share.
#[derive(Default)]
struct Ways<'a> {
    exec: Option<&'a ExecAction>,
    http: Option<&'a HTTPGetAction>,
    tcp: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
}

impl Check {
    /// What a probe of `container` does. The error is for the user.
    pub(crate) fn of_probe(probe: &Probe, container: &Container) -> Result<Self, String> {
        let ways = Ways {
            exec: probe.exec.as_ref(),
            http: probe.http_get.as_ref(),
            tcp: probe.tcp_socket.as_ref(),
            grpc: probe.grpc.as_ref(),
        };
        ways.check(container)
    }

    /// What a hook of `container` does. The error is for the user.
    pub(crate) fn of_hook(hook: &LifecycleHandler, container: &Container) -> Result<Self, String> {
        if let Some(sleep) = &hook.sleep {
            return Ok(Self::Sleep(Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0))));
        }
        let ways = Ways {
            exec: hook.exec.as_ref(),
            http: hook.http_get.as_ref(),
            tcp: hook.tcp_socket.as_ref(),
            ..Ways::default()
        };
        ways.check(container)
    }

    /// Does it. The error says what went wrong. Only commands look at `limit`; for the rest it is the caller's.
    pub(crate) async fn run(&self, place: &Place, limit: Duration) -> Result<(), String> {
        match self {
            Self::Exec(command) => {
                let target = place.target.as_ref().ok_or("there is no process to run commands beside")?;
                let outcome = target.run(command, limit).await.map_err(|error| format!("{error:#}"))?;
                if outcome.code == 0 {
                    return Ok(());
                }
                Err(format!(
                    "command {command:?} exited with {}: {}",
                    outcome.code,
                    outcome.output.trim_end()
                ))
            }
            Self::Http(request) => http::get(place.address, request).await,
            Self::Tcp { host, port } => {
                let address = resolve(place.address, host.as_deref(), *port).await?;
                let connected = TcpStream::connect(address).await;
                connected.map(drop).map_err(|error| format!("dial tcp {address}: {error}"))
            }
            Self::Grpc { port, service } => grpc::check(SocketAddr::new(place.address, *port), service).await,
            Self::Sleep(time) => {
                tokio::time::sleep(*time).await;
                Ok(())
            }
        }
    }
}

impl Ways<'_> {
    fn check(&self, container: &Container) -> Result<Check, String> {
        if let Some(exec) = self.exec {
            return Ok(Check::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = self.http {
            let path = get.path.clone().unwrap_or_default();
            let headers = get.http_headers.iter().flatten();
            return Ok(Check::Http(HttpCheck {
                tls: get.scheme.as_deref() == Some("HTTPS"),
                host: get.host.clone().filter(|host| !host.is_empty()),
                port: port_number(&get.port, container)?,
                path: if path.starts_with('/') { path } else { format!("/{path}") },
                headers: headers.map(|header| (header.name.clone(), header.value.clone())).collect(),
            }));
        }
        if let Some(tcp) = self.tcp {
            return Ok(Check::Tcp {
                host: tcp.host.clone().filter(|host| !host.is_empty()),
                port: port_number(&tcp.port, container)?,
            });
        }
        if let Some(grpc) = self.grpc {
            return Ok(Check::Grpc {
                port: u16::try_from(grpc.port).map_err(|_| format!("port {} is out of range", grpc.port))?,
                service: grpc.service.clone().unwrap_or_default(),
            });
        }
        Err("it names nothing to do".to_owned())
    }
}

/// A port that may be the name of one of the container's.
fn port_number(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => name.parse().ok().or_else(|| {
            let ports = container.ports.iter().flatten();
            ports.filter(|port| port.name.as_ref() == Some(name)).map(|port| port.container_port).next()
        }),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .ok_or_else(|| format!("container {:?} has no port {port:?}", container.name))
}

/// An address to connect to.
pub(super) async fn resolve(pod: IpAddr, host: Option<&str>, port: u16) -> Result<SocketAddr, String> {
    let Some(host) = host else { return Ok(SocketAddr::new(pod, port)) };
    let mut found = lookup_host((host, port)).await.map_err(|error| format!("lookup {host}: {error}"))?;
    found.next().ok_or_else(|| format!("lookup {host}: no address"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_may_be_names() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}))
                .unwrap();
        let check =
            |probe: serde_json::Value| Check::of_probe(&serde_json::from_value(probe).unwrap(), &container);
        let http = check(json!({"httpGet": {"path": "ready", "port": "web", "scheme": "HTTPS",
                                            "httpHeaders": [{"name": "A", "value": "b"}]}}));
        let expected = HttpCheck {
            tls: true,
            host: None,
            port: 8080,
            path: "/ready".to_owned(),
            headers: vec![("A".to_owned(), "b".to_owned())],
        };
        assert_eq!(http, Ok(Check::Http(expected)));
        assert_eq!(check(json!({"tcpSocket": {"port": 9}})), Ok(Check::Tcp { host: None, port: 9 }));
        assert_eq!(check(json!({"grpc": {"port": 7}})), Ok(Check::Grpc { port: 7, service: String::new() }));
        assert!(check(json!({"tcpSocket": {"port": "other"}})).unwrap_err().contains("no port"));
        assert!(check(json!({})).is_err());
    }

    #[tokio::test]
    async fn a_closed_port_is_an_error() {
        let port = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let place = Place { address: [127, 0, 0, 1].into(), target: None };
        let error = Check::Tcp { host: None, port }.run(&place, Duration::from_secs(1)).await.unwrap_err();
        assert!(error.contains("refused"), "{error}");
    }
}
