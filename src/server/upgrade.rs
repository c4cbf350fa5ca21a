//! An upgrade without a lost call: another process takes the listening sockets over and serves, and only then this one drains.
//!
//! `toolgate upgrade` has the running process start the program anew, from the path that it was started from, with one end of a socket pair
//! as its standard input. Over it go, in this order: every listening socket; `ready` with its version from the new process, which has read
//! the conf, compiled the policy and asked the servers for their tools; the counts of the old one, with which the new one begins to serve;
//! and, when the old one has drained, its counts once more. Until the old process sends its first counts it goes on as if nothing was.
//!
//! Pingora's table of inherited descriptors takes the sockets in; its own hand-over (SIGQUIT) is not used, as it stops the old process before
//! the new one can be known to be ready.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::net::UnixStream as Socket,
    },
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    process::{Child, Command},
};

use super::{Rooms, StartError, background, doors::Doors, notify};
use crate::admin::Upgraded;

/// What the new process may take until it is ready: its first round of discovery takes 10 s at most.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Sockets that can be handed over in one message (`SCM_MAX_FD`).
const SOCKETS_MAX: usize = 253;
/// Bytes of their names.
const NAMES_BYTES_MAX: usize = 32 * 1024;
/// The largest frame: the counts of a process, as Prometheus reads them.
const FRAME_BYTES_MAX: u32 = 256 << 20;
/// How often readiness is looked at.
const TICK: Duration = Duration::from_millis(20);

/// How to start the program anew.
#[derive(Debug)]
pub(super) struct Program {
    /// As it was at the start: a package that replaces the file does not change the path.
    pub(super) executable: PathBuf,
    pub(super) conf: PathBuf,
}

/// Starts the new process, waits until it serves, and begins to drain this one.
///
/// # Errors
/// Why not, in words; this process goes on.
pub(super) async fn hand_over(rooms: &Arc<Rooms>) -> Result<Upgraded, String> {
    let Ok(mut heir) = rooms.heir.try_lock() else { return Err("an upgrade is under way".to_owned()) };
    if heir.is_some() || rooms.ready.is_stopping() {
        return Err("this process is stopping".to_owned());
    }
    tracing::info!(program = %rooms.program.executable.display(), "upgrade: starting the new process");
    let following = tokio::spawn(follow(Arc::clone(rooms)));
    let (child, stream) = start(rooms).map_err(|why| format!("the new process could not be started: {why}"))?;
    let done = agree(rooms, child, stream).await;
    match done {
        Ok((upgraded, stream)) => {
            tracing::info!(pid = upgraded.pid, version = upgraded.version, "upgrade: the new process serves");
            *heir = Some(stream);
            rooms.vitals.succeeded.send_replace(true);
            Ok(upgraded)
        }
        Err(why) => {
            following.abort();
            tracing::error!("upgrade: {why}; this process goes on");
            Err(why)
        }
    }
}

/// The last word to the new process: what this one counted.
pub(super) async fn bequeath(rooms: &Rooms) {
    const LIMIT: Duration = Duration::from_secs(1);
    let Some(mut stream) = rooms.heir.lock().await.take() else { return };
    let counts = background::counts(rooms);
    if !matches!(tokio::time::timeout(LIMIT, write_frame(&mut stream, &counts)).await, Ok(Ok(()))) {
        tracing::warn!("upgrade: the last counts could not be handed over");
    }
}

/// Takes over what the new process writes to the store, until this one ends: the two are a fleet for that long.
async fn follow(rooms: Arc<Rooms>) {
    loop {
        tokio::time::sleep(background::REFRESH_EVERY).await;
        if let Err(why) = rooms.control.refresh().await {
            tracing::error!("what the new process wrote was not taken: {why}");
        }
    }
}

fn start(rooms: &Rooms) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = Socket::pair()?;
    let child = Command::new(&rooms.program.executable)
        .args(["serve", "--take-over", "--conf"])
        .arg(&rooms.program.conf)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        // it names this process
        .env_remove("WATCHDOG_PID")
        .spawn()?;
    send_sockets(&ours, &rooms.doors.load())?;
    ours.set_nonblocking(true)?;
    Ok((child, UnixStream::from_std(ours)?))
}

/// Waits for the new process and lets it serve.
async fn agree(rooms: &Rooms, mut child: Child, mut stream: UnixStream) -> Result<(Upgraded, UnixStream), String> {
    let said = tokio::time::timeout(START_LIMIT, read_frame(&mut stream)).await;
    let (pid, version) = match (said, child.id()) {
        (Ok(Ok(version)), Some(pid)) => (pid, String::from_utf8_lossy(&version).into_owned()),
        (Err(_), _) => {
            let _ = child.kill().await;
            return Err(format!("the new process was not ready within {} s and was ended", START_LIMIT.as_secs()));
        }
        _ => return Err(format!("the new process {}; its messages are in the log", ended(child.wait().await))),
    };
    notify::succeeded_by(pid);
    if write_frame(&mut stream, &background::counts(rooms)).await.is_err() {
        notify::succeeded_by(std::process::id());
        return Err(format!("the new process {}; its messages are in the log", ended(child.wait().await)));
    }
    Ok((Upgraded { pid, version }, stream))
}

fn ended(how: io::Result<ExitStatus>) -> String {
    match how.map(|status| status.code()) {
        Ok(Some(code)) => format!("ended with exit code {code}"),
        _ => "was killed".to_owned(),
    }
}

/// The process that this one takes over from.
#[derive(Debug)]
pub(super) struct Predecessor(Socket);

/// Receives the sockets of the process that started this one.
///
/// # Errors
/// [`StartError::Listen`]: standard input is not what a running gateway makes it.
pub(super) fn receive() -> Result<(Doors, Predecessor), StartError> {
    let refused = |why: io::Error| {
        StartError::Listen(format!("--take-over: standard input is not the socket of a running gateway: {why}"))
    };
    let stream = Socket::from(rustix::stdio::stdin().try_clone_to_owned().map_err(refused)?);
    let sockets = receive_sockets(&stream).map_err(refused)?;
    Ok((Doors::handed(sockets), Predecessor(stream)))
}

/// Tells the process before that this one is ready, waits until it lets go, and takes its counts over. False: told to stop before.
///
/// # Errors
/// [`StartError::Listen`]: the process before is gone, or changed its mind.
pub(super) async fn take_over(rooms: Arc<Rooms>, predecessor: Predecessor) -> Result<bool, StartError> {
    let gone = |_| StartError::Listen("--take-over: the process before has gone without handing over".to_owned());
    while !rooms.ready.lacks().is_empty() {
        if rooms.ready.is_stopping() {
            return Ok(false);
        }
        tokio::time::sleep(TICK).await;
    }
    predecessor.0.set_nonblocking(true).map_err(gone)?;
    let mut stream = UnixStream::from_std(predecessor.0).map_err(gone)?;
    write_frame(&mut stream, env!("CARGO_PKG_VERSION").as_bytes()).await.map_err(gone)?;
    rooms.metrics.inherit(&read_frame(&mut stream).await.map_err(gone)?);
    background::open_ops(&rooms)?;
    tracing::info!("taken over from the process before, which drains");
    tokio::spawn(async move {
        match read_frame(&mut stream).await {
            Ok(counts) => {
                rooms.metrics.inherit(&counts);
                tracing::info!("the process before has drained");
            }
            Err(_) => tracing::warn!("the process before ended without handing its last counts over"),
        }
    });
    Ok(true)
}

/// One message: the names, a line each, and the descriptors in the same order.
fn send_sockets(stream: &Socket, doors: &Doors) -> io::Result<()> {
    let (names, sockets): (Vec<&str>, Vec<BorrowedFd<'_>>) = doors.all().unzip();
    let names = names.join("\n");
    if sockets.len() > SOCKETS_MAX || names.len() > NAMES_BYTES_MAX {
        return Err(io::Error::other(format!("more than {SOCKETS_MAX} listeners cannot be handed over")));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("the descriptors do not fit"));
    }
    let mut text = (names + "\n\n").into_bytes();
    let sent = rustix::net::sendmsg(stream.as_fd(), &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    // the descriptors went with the first byte
    text.drain(..sent);
    (&*stream).write_all(&text)
}

fn receive_sockets(stream: &Socket) -> io::Result<BTreeMap<String, OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; NAMES_BYTES_MAX + 2];
    let mut read = 0;
    let mut sockets = Vec::new();
    loop {
        let rest = text.get_mut(read..).unwrap_or_default();
        let message =
            rustix::net::recvmsg(stream.as_fd(), &mut [IoSliceMut::new(rest)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(some) = part {
                sockets.extend(some);
            }
        }
        read += message.bytes;
        if message.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if text.get(..read).is_some_and(|text| text.ends_with(b"\n\n")) {
            break;
        }
    }
    let names = String::from_utf8_lossy(text.get(..read).unwrap_or_default()).into_owned();
    Ok(names.lines().filter(|name| !name.is_empty()).map(str::to_owned).zip(sockets).collect())
}

async fn write_frame(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_u32(length).await?;
    stream.write_all(bytes).await
}

async fn read_frame(stream: &mut UnixStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u32().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used)]
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn sockets_go_over_with_their_names() {
        let (one, two) = Socket::pair().unwrap();
        let listeners: Vec<TcpListener> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<String> = listeners.iter().map(|l| l.local_addr().unwrap().to_string()).collect();
        let named = addresses.iter().cloned().zip(listeners.into_iter().map(OwnedFd::from)).collect();
        send_sockets(&one, &Doors::handed(named)).unwrap();
        let received = receive_sockets(&two).unwrap();
        assert_eq!(received.len(), 3);
        for (name, socket) in received {
            let listener = TcpListener::from(socket);
            assert_eq!(listener.local_addr().unwrap().to_string(), name);
            assert!(TcpStream::connect(&name).is_ok(), "nobody closed it in between");
        }
        send_sockets(&one, &Doors::default()).unwrap();
        assert!(receive_sockets(&two).unwrap().is_empty());
        drop(one);
        assert!(receive_sockets(&two).is_err(), "the other side is gone");
    }

    #[tokio::test]
    async fn frames_come_as_they_were_sent_and_not_larger_than_allowed() {
        let (mut one, mut two) = UnixStream::pair().unwrap();
        for frame in [b"".as_slice(), b"0.1.0", &[7; 100_000]] {
            let (sent, read) = tokio::join!(write_frame(&mut one, frame), read_frame(&mut two));
            sent.unwrap();
            assert_eq!(read.unwrap(), frame);
        }
        one.write_u32(FRAME_BYTES_MAX + 1).await.unwrap();
        assert_eq!(read_frame(&mut two).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(one);
        assert!(read_frame(&mut two).await.is_err());
    }
}
