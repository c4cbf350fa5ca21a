//! A TCP way to a real server that can be made slow, silent or shut while the server itself is well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The way to a server; closed when dropped.
pub struct Toggle {
    /// Where it is.
    pub port: u16,
    delay_ms: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Toggle {
    /// A way to a port of 127.0.0.1.
    pub async fn to(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let delay_ms = Arc::new(AtomicU64::new(0));
        let delay = Arc::clone(&delay_ms);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(carry(from_client, to_server, Arc::clone(&delay)));
                tokio::spawn(carry(from_server, to_client, Arc::clone(&delay)));
            }
        });
        Self { port, delay_ms, task }
    }

    /// Each piece takes so much longer from now on, in each direction.
    pub fn slow(&self, delay: Duration) {
        self.delay_ms.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::Relaxed);
    }
}

async fn carry(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    delay_ms: Arc<AtomicU64>,
) {
    let mut piece = vec![0; 16 * 1024];
    while let Ok(length) = from.read(&mut piece).await {
        tokio::time::sleep(Duration::from_millis(delay_ms.load(Ordering::Relaxed))).await;
        if length == 0 || to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
}

impl Drop for Toggle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
