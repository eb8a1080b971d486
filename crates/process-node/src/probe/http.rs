//! HTTP and HTTPS probes.

use std::net::IpAddr;
use std::sync::Arc;

use http::Request;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::check::{HttpCheck, resolve};

/// Sends the request and judges the answer's code as kubelet does.
pub(super) async fn get(pod: IpAddr, check: &HttpCheck) -> Result<(), String> {
    let address = resolve(pod, check.host.as_deref(), check.port).await?;
    let scheme = if check.tls { "https" } else { "http" };
    let what = |error: String| format!("Get \"{scheme}://{address}{}\": {error}", check.path);
    let stream =
        TcpStream::connect(address).await.map_err(|error| what(format!("dial tcp {address}: {error}")))?;
    let code = if check.tls {
        let name = match check.host.as_deref() {
            Some(host) => ServerName::try_from(host.to_owned()).map_err(|error| what(error.to_string()))?,
            None => ServerName::from(pod),
        };
        let connector = TlsConnector::from(Arc::new(trusting()?));
        let stream = connector.connect(name, stream).await.map_err(|error| what(error.to_string()))?;
        exchange(stream, check, address.to_string()).await
    } else {
        exchange(stream, check, address.to_string()).await
    };
    match code.map_err(what)? {
        200..400 => Ok(()),
        code => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    check: &HttpCheck,
    authority: String,
) -> Result<u16, String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let request = request(check, authority)?;
    let mut response = std::pin::pin!(sender.send_request(request));
    // The connection is driven beside the request. It may end first, with the answer already taken from it.
    let response = tokio::select! {
        response = &mut response => response,
        _ = connection => response.await,
    };
    response.map(|response| response.status().as_u16()).map_err(|error| error.to_string())
}

fn request(check: &HttpCheck, authority: String) -> Result<Request<Empty<Bytes>>, String> {
    let mut request = Request::get(&check.path);
    let has = |name: &str| check.headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    if !has(HOST.as_str()) {
        request = request.header(HOST, authority);
    }
    if !has(USER_AGENT.as_str()) {
        request = request.header(USER_AGENT, "kube-probe/1.35");
    }
    if !has(ACCEPT.as_str()) {
        request = request.header(ACCEPT, "*/*");
    }
    for (name, value) in &check.headers {
        request = request.header(name, value);
    }
    request.body(Empty::new()).map_err(|error| error.to_string())
}

/// A TLS client that accepts any certificate.
fn trusting() -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(config)
}

/// Probes ask whether a server answers, not who it is.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_probe_replace_the_usual_ones() {
        let check = HttpCheck {
            tls: false,
            host: None,
            port: 80,
            path: "/x?y".to_owned(),
            headers: vec![("host".to_owned(), "example.com".to_owned()), ("X-A".to_owned(), "1".to_owned())],
        };
        let request = request(&check, "10.0.0.1:80".to_owned()).unwrap();
        assert_eq!(request.uri(), "/x?y");
        assert_eq!(request.headers()[HOST], "example.com");
        assert_eq!(request.headers()["x-a"], "1");
        assert_eq!(request.headers()[USER_AGENT], "kube-probe/1.35");
    }
}
