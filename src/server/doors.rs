//! The listening sockets of the process: bound at the start or handed over by the process before, and handed on in an upgrade.
//!
//! A socket is open as long as any descriptor of it is, in whatever process, and who connected to it waits for whoever accepts next: so an
//! upgrade closes no door. For the same reason a drain has to close the descriptors that are kept here.

use std::{
    collections::BTreeMap,
    fs, io,
    net::TcpListener,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt as _, PermissionsExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
};

use super::StartError;
use crate::conf::{Address, Conf};

/// The option of the agents' listeners.
pub(super) const GATEWAY: &str = "gateway.listen";
/// The option of `/metrics` and health.
pub(super) const OPS: &str = "ops.listen";
/// The option of the management API's socket.
pub(super) const ADMIN_SOCKET: &str = "admin.socket";
/// The option of the management API's TCP listener.
pub(super) const ADMIN_LISTEN: &str = "admin.listen";

/// The sockets, by option and address.
#[derive(Debug, Default)]
pub(super) struct Doors(BTreeMap<String, OwnedFd>);

impl Doors {
    /// What another process handed over; the conf is asked by [`Doors::open`].
    pub(super) const fn handed(sockets: BTreeMap<String, OwnedFd>) -> Self {
        Self(sockets)
    }

    /// The sockets that the conf wants: those that were handed over, and new ones for the others. What it does not want is closed.
    ///
    /// # Errors
    /// [`StartError::Listen`]: the first that cannot be bound, with its option and address.
    pub(super) fn open(mut self, conf: &Conf) -> Result<Self, StartError> {
        let mut open = BTreeMap::new();
        for (option, address) in wanted(conf) {
            let name = name(option, &address);
            let socket = match self.0.remove(&name) {
                Some(socket) => Ok(socket),
                None => bind(option, &address),
            };
            let cannot = |why: io::Error| StartError::Listen(format!("{option}: {address}: {why}"));
            open.insert(name, socket.map_err(cannot)?);
        }
        Ok(Self(open))
    }

    /// Another descriptor of a socket; none: the conf does not want it.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub(super) fn get(&self, option: &str, address: &Address) -> Result<Option<OwnedFd>, StartError> {
        let cannot = |why: io::Error| StartError::Listen(format!("{option}: {address}: {why}"));
        self.0.get(&name(option, address)).map(OwnedFd::try_clone).transpose().map_err(cannot)
    }

    /// Every name and its socket.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.0.iter().map(|(name, socket)| (name.as_str(), socket.as_fd()))
    }
}

fn name(option: &str, address: &Address) -> String {
    format!("{option} {address}")
}

/// Every listener that the conf names.
fn wanted(conf: &Conf) -> Vec<(&'static str, Address)> {
    let mut all: Vec<_> = conf.gateway.listen.iter().map(|listen| (GATEWAY, listen.address.clone())).collect();
    all.extend(conf.ops.listen.clone().map(|address| (OPS, address)));
    all.extend(conf.admin.socket.clone().map(|path| (ADMIN_SOCKET, Address::Unix(path))));
    all.extend(conf.admin.listen.map(|address| (ADMIN_LISTEN, Address::Tcp(address))));
    all
}

/// Who may connect to a unix socket: agents have keys, operators share a group, the management API is for one user.
fn mode(option: &str) -> u32 {
    match option {
        GATEWAY => 0o666,
        OPS => 0o660,
        _ => 0o600,
    }
}

fn bind(option: &str, address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Tcp(address) => {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener.into())
        }
        Address::Unix(path) => bind_unix(path, mode(option)).map(OwnedFd::from),
    }
}

/// Binds beside the path, sets the mode, and only then moves the socket to its path: it never stands there with another mode.
/// A socket that nobody listens on any more is replaced; a live one, and a file that is no socket, are left alone.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    if let Ok(there) = fs::symlink_metadata(path) {
        if !there.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there"));
        }
    }
    let beside = beside(path);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let placed =
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode)).and_then(|()| fs::rename(&beside, path));
    if placed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    placed?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A name in the same folder that is no longer than it must be: a socket's path has at most 107 bytes.
fn beside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".tg{}", std::process::id()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_dead_unix_socket_is_replaced_and_a_live_one_is_not() {
        let folder = std::env::temp_dir().join(format!("toolgate-doors-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let address = Address::Unix(folder.join("x.sock"));
        let path = folder.join("x.sock");
        for (option, mode) in [(GATEWAY, 0o666), (OPS, 0o660), (ADMIN_SOCKET, 0o600)] {
            // the socket of the round before is dead by now
            let socket = bind(option, &address).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode, "{option}");
            assert_eq!(bind(option, &address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
            drop(socket);
            assert!(path.exists(), "a socket that nobody listens on");
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a file").unwrap();
        assert!(bind(OPS, &address).is_err(), "a file that is no socket is left alone");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
        fs::remove_dir_all(&folder).unwrap();
    }
}
