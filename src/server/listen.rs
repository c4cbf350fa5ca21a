//! The data plane's listeners: Pingora's server over the edge.

use std::net::TcpListener;

use pingora::{
    listeners::tls::TlsSettings,
    proxy::http_proxy,
    server::{Server, configuration::ServerConf},
    services::listening::Service,
};

use super::StartError;
use crate::{
    conf::{Address, Conf},
    proxy::{Edge, Gateway},
};

/// Idle connections to servers that are kept.
const POOL_MAX: usize = 1024;
/// The first try of a call and one renewal of a legacy session.
const TRIES_MAX: usize = 2;

/// Whether every TCP listener can be bound: a clear error before anything starts.
///
/// # Errors
/// [`StartError::Listen`]
pub(super) fn probe(conf: &Conf) -> Result<(), StartError> {
    for listen in &conf.gateway.listen {
        if let Address::Tcp(address) = &listen.address {
            TcpListener::bind(address)
                .map_err(|why| StartError::Listen(format!("gateway.listen: {address}: {why}")))?;
        }
    }
    Ok(())
}

/// Pingora's server with one service on every listener. Its YAML is never read: everything comes from our conf.
///
/// # Errors
/// [`StartError::Listen`]: a certificate or key that cannot be used.
pub(super) fn data_plane(conf: &Conf, gateway: &Gateway) -> Result<Server, StartError> {
    let threads = match conf.gateway.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => usize::try_from(threads).unwrap_or(1),
    };
    let server_conf = ServerConf {
        threads,
        work_stealing: false,
        max_retries: TRIES_MAX,
        upstream_keepalive_pool_size: POOL_MAX,
        grace_period_seconds: Some(conf.timeouts.drain.0.as_secs()),
        graceful_shutdown_timeout_seconds: Some(1),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, server_conf);
    let proxy = http_proxy(&server.configuration, gateway.clone());
    let mut service = Service::new("gateway".to_owned(), Edge::new(proxy, gateway.clone()));
    service.threads = Some(threads);
    for listen in &conf.gateway.listen {
        match (&listen.address, &listen.tls) {
            (Address::Unix(path), _) => service.add_uds(&path.display().to_string(), None),
            (Address::Tcp(address), None) => service.add_tcp(&address.to_string()),
            (Address::Tcp(address), Some(tls)) => {
                let unusable = |why| StartError::Listen(format!("gateway.listen: {address}: tls: {why}"));
                for path in [&tls.certificate, &tls.key] {
                    std::fs::read(path).map_err(|why| unusable(format!("{}: {why}", path.display())))?;
                }
                let (certificate, key) = (tls.certificate.display().to_string(), tls.key.display().to_string());
                let mut settings = TlsSettings::intermediate(&certificate, &key)
                    .map_err(|_| unusable("the certificate or key cannot be used".to_owned()))?;
                settings.enable_h2();
                service.add_tls_with_settings(&address.to_string(), None, settings);
            }
        }
    }
    server.add_service(service);
    Ok(server)
}
