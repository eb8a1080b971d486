//! A proxy before the API server that makes the faults of real life happen when a test wants them.
//!
//! ```text
//! client (kube, kubectl, an operator) --https+token--> FaultProxy --https--> kube-apiserver
//!                                                        ^
//!                                              test: Faults (rules, cuts, counters)
//! ```
//!
//! A rule says which requests ([`Match`]), which of these ([`When`]) and what befalls them ([`Fault`]):
//!
//! ```no_run
//! # use testbed::fault::*;
//! # async fn example(upstream: &kube::Config, token: &str) -> anyhow::Result<()> {
//! let proxy = FaultProxy::start(upstream).await?;
//! let client = kube::Client::try_from(proxy.config(token)?)?;
//! // The third write that is not a lease happens, but its writer never learns of it.
//! let lost = Match::writes().without("leases");
//! let lost = proxy.faults().add(Rule::new(lost, Fault::HangUp(Stage::After)).when(When::Nth(3)));
//! # drop(client);
//! assert_eq!(proxy.faults().hits(lost), 0);
//! # Ok(())
//! # }
//! ```
//!
//! `kube` clients retry answers of 429, 503 and 504 by themselves, so a test that counts tries counts
//! those too. A proxy in front of the API server is seen as the server by its clients alone: what the
//! server's own parts and the node do passes it by.

mod faults;
mod kill;
mod proxy;
mod relay;
mod request;
mod rule;
mod status;

pub use faults::{Expiry, Faults, RuleId};
pub use proxy::FaultProxy;
pub(crate) use request::is_review;
pub use request::{Request, UnknownVerb, Verb};
pub use rule::{Cut, Fault, Limit, Match, Rule, Stage, Victim, When};
pub use status::Failure;
