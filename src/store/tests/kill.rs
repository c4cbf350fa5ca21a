//! A process that commits in a loop is killed (`kill -9`) at any moment; what it was told is there, and nothing half.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, Command, Stdio},
};

use super::{dir::TempDir, samples};
use crate::store::{Store, Write};

/// Set for the process that commits: the store's URL.
const CHILD: &str = "TOOLGATE_TEST_STORE_CHILD";
/// Objects that each commit writes.
const OBJECTS: usize = 20;
/// How often a process is killed.
const KILLS: u64 = 15;

#[tokio::test]
async fn a_killed_process_leaves_every_confirmed_commit_and_no_half_one() {
    let dir = TempDir::new();
    check_kills(&dir.url(), KILLS).await;
}

#[tokio::test]
async fn a_process_killed_while_it_makes_a_store_leaves_one_that_opens() {
    for _ in 0..KILLS {
        let dir = TempDir::new();
        let mut child = start(&dir.url());
        // Its file is the first sign of life.
        while !dir.path().join("toolgate.db").exists() {
            std::thread::yield_now();
        }
        spin(3_000_000);
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Store::open(&dir.url()).await.unwrap();
        assert_ne!(store.state_key(), [0; 32]);
        let revision = store.load().await.unwrap().revision;
        assert_eq!(store.commit(Some(revision), &[], &[]).await.unwrap(), revision + 1);
        store.close().await;
    }
}

/// Kills `kills` processes that commit to the store at `url`, and looks at it after each.
pub(super) async fn check_kills(url: &str, kills: u64) {
    let mut confirmed = 0;
    for kill in 0..kills {
        let told = run_and_kill(url, 1 + kill % 7);
        assert!(told > confirmed, "the child committed nothing after {confirmed}");
        let store = Store::open(url).await.unwrap();
        let stored = store.load().await.unwrap();
        // The last one may have been killed between its commit and its word.
        assert!(stored.revision == told || stored.revision == told + 1, "{} after {told}", stored.revision);
        assert_eq!(stored.objects.len(), OBJECTS);
        assert!(stored.objects.iter().all(|object| object.json == stored.revision.to_string()));
        assert_eq!(stored.tools.len(), 1);
        assert_eq!(stored.tools[0].recorded, i64::try_from(stored.revision).unwrap());
        let audit = store.audit(0, u32::MAX).await.unwrap();
        assert_eq!(audit.len(), usize::try_from(stored.revision).unwrap());
        for (row, number) in audit.iter().zip(1u64..) {
            assert_eq!((row.seq, row.revision, row.record.target.as_str()), (number, number, &*number.to_string()));
        }
        confirmed = stored.revision;
        store.close().await;
    }
}

/// This program again, as [`a_child_commits_until_it_is_killed`].
fn start(url: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::kill::a_child_commits_until_it_is_killed", "--nocapture"])
        .env(CHILD, url)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Passes some time, so that a kill falls anywhere.
fn spin(turns_max: u32) {
    for _ in 0..rand::random_range(0..turns_max) {
        std::hint::spin_loop();
    }
}

/// Starts this program again as [`a_child_commits_until_it_is_killed`], kills it some time after it has told of `after`
/// commits, and gives the last revision that it told.
fn run_and_kill(url: &str, after: u64) -> u64 {
    let mut child = start(url);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = 0;
    let mut seen = 0;
    for line in lines {
        let line = line.unwrap();
        let Some(revision) = line.strip_prefix("confirmed ") else { continue };
        told = revision.parse().unwrap();
        seen += 1;
        if seen == after {
            // Not always at the same point of the next commit.
            spin(2_000_000);
            child.kill().unwrap();
        }
    }
    assert!(seen >= after, "the child ended by itself after {seen} commits");
    child.wait().unwrap();
    told
}

#[tokio::test]
async fn a_child_commits_until_it_is_killed() {
    let Ok(url) = std::env::var(CHILD) else { return };
    let store = Store::open(&url).await.unwrap();
    loop {
        let next = store.revision().await.unwrap() + 1;
        let mut tool = samples::tool("github", "echo");
        tool.recorded = i64::try_from(next).unwrap();
        let mut writes: Vec<_> =
            (0..OBJECTS).map(|n| Write::PutObject(samples::object("key", &n.to_string(), &next.to_string()))).collect();
        writes.push(Write::PutTool(tool));
        let audit = [samples::audit(&next.to_string())];
        let revision = store.commit(Some(next - 1), &writes, &audit).await.unwrap();
        let mut out = std::io::stdout().lock();
        out.write_all(format!("\nconfirmed {revision}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}
