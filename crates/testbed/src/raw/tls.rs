//! TLS whose server name and protocol a test chooses.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Which servers are trusted.
#[derive(Clone, Debug)]
pub struct Tls(ClientConfig);

impl Tls {
    /// Trusts servers with this certificate (PEM), or with one signed by it.
    pub fn trusting(certificate: &str) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(certificate.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        Ok(Self(config.with_root_certificates(roots).with_no_client_auth()))
    }

    /// Shakes hands as a client that asks for `name` and speaks `protocol`.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        name: &str,
        protocol: &str,
    ) -> Result<TlsStream<TcpStream>> {
        let mut config = self.0.clone();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let server =
            ServerName::try_from(name.to_owned()).with_context(|| format!("server name {name:?}"))?;
        TlsConnector::from(Arc::new(config)).connect(server, stream).await.context("shake hands")
    }
}
