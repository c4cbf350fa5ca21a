//! The narrow waist over the two engines: one transaction type, values in, rows out.
//!
//! Everything above it is written once, in SQL that SQLite and PostgreSQL both accept. Knows no table and no record.
//!
//! **Invariant.** Every text comes back as it went in, on both engines. PostgreSQL has no U+0000 in its texts, but a
//! server may put one into a tool's name; so it is written as the noncharacter U+FDD0 and a digit.

use std::{borrow::Cow, future::Future, io, time::Duration};

use sqlx::{
    Database, Encode, Postgres, Row as _, Sqlite, Transaction, Type,
    postgres::{PgPool, PgRow},
    query::Query,
    sqlite::{SqlitePool, SqliteRow},
};

/// The pool of one engine.
#[derive(Clone)]
pub(super) enum Db {
    /// The embedded default.
    Sqlite(SqlitePool),
    /// For a fleet.
    Postgres(PgPool),
}

/// How long PostgreSQL may take for one statement: a server that hangs says nothing.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long it may take to give a whole table.
const TABLE_MAX: Duration = Duration::from_secs(30);

/// What a transaction is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One consistent view of every table.
    Read,
    /// Takes SQLite's write lock at once, so that it never fails half way for want of it.
    Write,
}

/// A transaction; dropped without [`Tx::commit`], it never happened.
pub(super) enum Tx {
    /// SQLite's.
    Sqlite(Transaction<'static, Sqlite>),
    /// PostgreSQL's.
    Postgres(Transaction<'static, Postgres>),
}

/// A value for a `$n` of a statement.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    /// TEXT
    Text(&'a str),
    /// A TEXT that is NULL.
    Null,
    /// BIGINT
    Int(i64),
}

/// A row of an answer; columns are counted from 0.
pub(super) enum Row {
    /// SQLite's.
    Sqlite(SqliteRow),
    /// PostgreSQL's.
    Postgres(PgRow),
}

impl Db {
    /// Begins a transaction.
    pub(super) async fn begin(&self, purpose: Purpose) -> Result<Tx, sqlx::Error> {
        match self {
            Self::Sqlite(pool) => {
                let begin = match purpose {
                    Purpose::Read => "BEGIN DEFERRED",
                    Purpose::Write => "BEGIN IMMEDIATE",
                };
                pool.begin_with(begin).await.map(Tx::Sqlite)
            }
            Self::Postgres(pool) => {
                let begin = match purpose {
                    Purpose::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
                    Purpose::Write => "BEGIN ISOLATION LEVEL READ COMMITTED",
                };
                in_time(ANSWER_MAX, pool.begin_with(begin)).await.map(Tx::Postgres)
            }
        }
    }

    /// Gives every connection back and waits until they are closed.
    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Tx {
    /// Runs a statement; gives the number of rows that it wrote.
    pub(super) async fn run(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(tx) => query::<Sqlite>(sql, values).execute(&mut **tx).await.map(|done| done.rows_affected()),
            Self::Postgres(tx) => {
                let done = in_time(ANSWER_MAX, query::<Postgres>(sql, values).execute(&mut **tx)).await;
                done.map(|done| done.rows_affected())
            }
        }
    }

    /// Runs a statement; gives its rows.
    pub(super) async fn rows(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(tx) => {
                let rows = query::<Sqlite>(sql, values).fetch_all(&mut **tx).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(tx) => {
                let rows = in_time(TABLE_MAX, query::<Postgres>(sql, values).fetch_all(&mut **tx)).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Like [`Tx::rows`], for a statement that always gives a row.
    pub(super) async fn row(&mut self, sql: &'static str, values: &[Value<'_>]) -> Result<Row, sqlx::Error> {
        let rows = match self {
            Self::Sqlite(_) => self.rows(sql, values).await,
            Self::Postgres(_) => in_time(ANSWER_MAX, self.rows(sql, values)).await,
        };
        rows?.into_iter().next().ok_or(sqlx::Error::RowNotFound)
    }

    /// Whether several processes on several machines share the store.
    pub(super) const fn is_shared(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }

    /// Makes it happen: on disk when this returns.
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(tx) => tx.commit().await,
            Self::Postgres(tx) => in_time(ANSWER_MAX, tx.commit()).await,
        }
    }

    /// Takes everything back.
    pub(super) async fn rollback(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(tx) => tx.rollback().await,
            Self::Postgres(tx) => in_time(ANSWER_MAX, tx.rollback()).await,
        }
    }
}

impl Row {
    /// A TEXT column.
    pub(super) fn text(&self, column: usize) -> Result<String, sqlx::Error> {
        let text: String = match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        };
        Ok(unescape(text))
    }

    /// A TEXT column that may be NULL.
    pub(super) fn maybe(&self, column: usize) -> Result<Option<String>, sqlx::Error> {
        let text: Option<String> = match self {
            Self::Sqlite(row) => row.try_get(column)?,
            Self::Postgres(row) => row.try_get(column)?,
        };
        Ok(text.map(unescape))
    }

    /// A BIGINT column.
    pub(super) fn int(&self, column: usize) -> Result<i64, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }
}

async fn in_time<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => {
            let why = format!("PostgreSQL did not answer within {} s", limit.as_secs());
            Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, why)))
        }
    }
}

/// A statement with its values, for either engine.
fn query<DB>(sql: &'static str, values: &[Value<'_>]) -> Query<'static, DB, DB::Arguments>
where
    DB: Database,
    String: for<'t> Encode<'t, DB> + Type<DB>,
    Option<String>: for<'t> Encode<'t, DB> + Type<DB>,
    i64: for<'t> Encode<'t, DB> + Type<DB>,
{
    values.iter().fold(sqlx::query::<DB>(sql), |query, value| match value {
        Value::Text(text) => query.bind(escape(text).into_owned()),
        Value::Null => query.bind(None::<String>),
        Value::Int(number) => query.bind(*number),
    })
}

fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains('\0') && !text.contains(ESCAPE) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\0' => out.extend([ESCAPE, '0']),
            ESCAPE => out.extend([ESCAPE, '1']),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

fn unescape(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    text.replace(ESCAPED_NUL, "\0").replace(ESCAPED_ESCAPE, ESCAPE_TEXT)
}

/// A code point that Unicode keeps for the inside of programs.
const ESCAPE: char = '\u{fdd0}';
const ESCAPE_TEXT: &str = "\u{fdd0}";
const ESCAPED_NUL: &str = "\u{fdd0}0";
const ESCAPED_ESCAPE: &str = "\u{fdd0}1";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{escape, unescape};

    proptest! {
        #[test]
        fn any_text_comes_back_and_has_no_nul(text in "[a01\u{0}\u{fdd0}]{0,12}") {
            let stored = escape(&text).into_owned();
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(unescape(stored), text);
        }
    }
}
