//! The chains of the ledger and the audit log in the database: adding links, and the check of `verify`.

use sqlx::{AnyConnection, Row as _};

use super::{
    append::Bind,
    store::SqlStore,
    verify::{Snapshot, SnapshotRow},
};
use crate::{
    StoreError,
    chain::{self, ChainKey, LedgerLinkRow, RowMac},
    verify::{ConsistencyRule, VerifyReport},
};

/// The last link of a chain: its MAC and the position of its last row.
pub(super) const CHAIN_HEAD: &str = "SELECT mac, last FROM chain_heads WHERE chain = $1";
pub(super) const LINK: &str = "INSERT INTO chain_links (chain, first, last, mac) VALUES ($1, $2, $3, $4) RETURNING mac, last";
pub(super) const SET_HEAD: &str = "INSERT INTO chain_heads (chain, last, mac, seal) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (chain) DO UPDATE SET last = excluded.last, mac = excluded.mac, seal = excluded.seal RETURNING mac, last";

/// Links read per query.
const LINKS_AT_ONCE: i64 = 5_000;

/// A table with a chain.
struct ChainedTable {
    chain: &'static str,
    /// What a row is called in messages.
    rows: &'static str,
    /// Selects the rows at `$1` to `$2` in order; the position comes first.
    select: &'static str,
    /// Adds a row to a link.
    add: fn(&mut RowMac, &SnapshotRow<'_>) -> Result<(), sqlx::Error>,
}

const TABLES: [ChainedTable; 2] = [
    ChainedTable {
        chain: chain::LEDGER,
        rows: "ledger entries",
        select: "SELECT seq, member_id, at, kind, amount, balance, request_id, idempotency_key, note, actor FROM ledger \
                 WHERE seq >= $1 AND seq <= $2 ORDER BY seq",
        add: add_ledger,
    },
    ChainedTable {
        chain: chain::AUDIT,
        rows: "audit events of revisions",
        select: "SELECT revision, position, at, origin, actor, action, kind, id, name, detail FROM audit \
                 WHERE revision >= $1 AND revision <= $2 ORDER BY revision, position",
        add: add_audit,
    },
];

fn add_ledger(mac: &mut RowMac, row: &SnapshotRow<'_>) -> Result<(), sqlx::Error> {
    let entry = LedgerLinkRow {
        seq: row.number(0)?,
        member: row.text(1)?,
        at: row.number(2)?,
        kind: row.text(3)?,
        amount: row.number(4)?,
        balance: row.number(5)?,
        request: row.maybe_text(6)?,
        idempotency_key: row.maybe_text(7)?,
        note: row.text(8)?,
        actor: row.text(9)?,
    };
    entry.add_to(mac);
    Ok(())
}

fn add_audit(mac: &mut RowMac, row: &SnapshotRow<'_>) -> Result<(), sqlx::Error> {
    for at in 0..3 {
        mac.number(row.number(at)?);
    }
    for at in 3..10 {
        mac.text(row.text(at)?);
    }
    Ok(())
}

/// Adds a link to a chain in an open transaction that keeps other writers of the chain out.
pub(super) async fn add_link(
    connection: &mut AnyConnection,
    key: &ChainKey,
    chain: &'static str,
    (first, last): (i64, i64),
    add_rows: impl FnOnce(&mut RowMac),
) -> Result<(), sqlx::Error> {
    let head = sqlx::query(CHAIN_HEAD).bind(chain).fetch_optional(&mut *connection).await?;
    let previous: String = head.map_or(Ok(String::new()), |row| row.try_get(0))?;
    let mut link = key.link(chain, first, last, &previous);
    add_rows(&mut link);
    let mac = link.finish();
    sqlx::query(LINK).bind(chain).bind(first).bind(last).bind(mac.clone()).fetch_one(&mut *connection).await?;
    let seal = key.head(chain, last, &mac);
    sqlx::query(SET_HEAD).bind(chain).bind(last).bind(mac).bind(seal).fetch_one(&mut *connection).await?;
    Ok(())
}

/// A stored link.
struct Link {
    first: i64,
    last: i64,
    mac: String,
}

/// The check of one chain.
struct ChainCheck<'a> {
    key: ChainKey,
    table: &'a ChainedTable,
    /// Position and MAC of the last link seen.
    last: i64,
    mac: String,
}

/// The check of some links with the rows after the last position.
struct LinkCheck<'c, 'a> {
    chain: &'c mut ChainCheck<'a>,
    links: std::vec::IntoIter<Link>,
    /// The link that the next row should belong to, with the MAC of its rows so far.
    open: Option<(Link, RowMac)>,
    report: &'c mut VerifyReport,
}

impl SqlStore {
    /// Recomputes both chains and compares them with the stored links.
    pub(super) async fn verify_chains(&self, snapshot: &mut Snapshot<'_>, report: &mut VerifyReport) -> Result<(), StoreError> {
        for table in &TABLES {
            let key = ChainKey::of(&self.hasher);
            ChainCheck { key, table, last: i64::MIN, mac: String::new() }.run(snapshot, report).await?;
        }
        Ok(())
    }
}

impl ChainCheck<'_> {
    async fn run(&mut self, snapshot: &mut Snapshot<'_>, report: &mut VerifyReport) -> Result<(), StoreError> {
        loop {
            let sql = "SELECT first, last, mac FROM chain_links WHERE chain = $1 AND last > $2 ORDER BY last LIMIT $3";
            let bound = [self.table.chain.into(), Bind::Number(self.last), Bind::Number(LINKS_AT_ONCE)];
            let mut links = Vec::new();
            let read = |row: &SnapshotRow<'_>| {
                links.push(Link { first: row.number(0)?, last: row.number(1)?, mac: row.text(2)?.to_owned() });
                Ok(())
            };
            snapshot.each(sql, &bound, read).await?;
            let is_end = links.is_empty();
            self.compare(snapshot, links, report).await?;
            if is_end {
                return self.check_head(snapshot, report).await;
            }
        }
    }

    /// Compares the rows after the last position, up to the last of these links, with the links; with no links, all rows.
    async fn compare(
        &mut self,
        snapshot: &mut Snapshot<'_>,
        links: Vec<Link>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let (from, to) = (self.last.saturating_add(1), links.last().map_or(i64::MAX, |link| link.last));
        let select = self.table.select;
        let mut check = LinkCheck { chain: self, links: links.into_iter(), open: None, report };
        check.open_next();
        snapshot.each(select, &[Bind::Number(from), Bind::Number(to)], |row| check.add(row)).await?;
        while check.open.is_some() {
            check.close();
        }
        Ok(())
    }

    /// Checks that the last link is the one that the head names.
    async fn check_head(&self, snapshot: &mut Snapshot<'_>, report: &mut VerifyReport) -> Result<(), StoreError> {
        let sql = "SELECT last, mac, seal FROM chain_heads WHERE chain = $1";
        let mut head = None;
        let read = |row: &SnapshotRow<'_>| {
            head = Some((row.number(0)?, row.text(1)?.to_owned(), row.text(2)?.to_owned()));
            Ok(())
        };
        snapshot.each(sql, &[self.table.chain.into()], read).await?;
        let Some((last, mac, seal)) = head else {
            if self.last > i64::MIN {
                report.differs(ConsistencyRule::ChainEnd, self.table.rows.to_owned(), self.last, 0);
            }
            return Ok(());
        };
        if (last, &mac) != (self.last, &self.mac) || seal != self.key.head(self.table.chain, last, &mac) {
            report.differs(ConsistencyRule::ChainEnd, self.table.rows.to_owned(), last, self.last.max(0));
        }
        Ok(())
    }
}

impl LinkCheck<'_, '_> {
    fn open_next(&mut self) {
        let Self { chain, links, .. } = self;
        self.open = links.next().map(|link| {
            let mac = chain.key.link(chain.table.chain, link.first, link.last, &chain.mac);
            (link, mac)
        });
    }

    /// Compares the open link, whose rows have all been added, and opens the next one.
    fn close(&mut self) {
        let Some((link, mac)) = self.open.take() else { return };
        if mac.finish() != link.mac {
            let what = format!("{} {} to {}", self.chain.table.rows, link.first, link.last);
            self.report.differs(ConsistencyRule::Chain, what, link.first, link.last);
        }
        (self.chain.last, self.chain.mac) = (link.last, link.mac);
        self.open_next();
    }

    fn add(&mut self, row: &SnapshotRow<'_>) -> Result<(), sqlx::Error> {
        let position = row.number(0)?;
        while self.open.as_ref().is_some_and(|(link, _)| position > link.last) {
            self.close();
        }
        match &mut self.open {
            Some((link, mac)) if position >= link.first => (self.chain.table.add)(mac, row)?,
            // No link covers the row.
            Some(_) | None => {
                let what = format!("{} {position} to {position}", self.chain.table.rows);
                self.report.differs(ConsistencyRule::Chain, what, position, position);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
