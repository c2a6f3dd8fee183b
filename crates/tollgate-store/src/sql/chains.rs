//! The chains of the ledger and the audit log in the database: adding links, and the check of `verify`.

use futures_util::TryStreamExt as _;
use sqlx::{Any, AnyConnection, Row as _, Transaction, any::AnyRow};

use super::store::SqlStore;
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

const VERIFY: &str = "verify the chains of the ledger and the audit log";
/// Links read per query.
const LINKS_AT_ONCE: i64 = 5_000;

/// A table with a chain.
struct ChainedTable {
    chain: &'static str,
    /// Name of a row in messages.
    rows: &'static str,
    /// Selects the rows at `$1` to `$2` in order; the position comes first.
    select: &'static str,
    /// Adds a row to a link.
    add: fn(&mut RowMac, &AnyRow) -> Result<(), sqlx::Error>,
}

const TABLES: [ChainedTable; 2] = [
    ChainedTable {
        chain: chain::LEDGER,
        rows: "ledger entries",
        select: "SELECT seq, member_id, at, kind, amount, balance, batch, requests, first_at, last_at, parts, idempotency_key, note, \
                 actor, address FROM ledger WHERE seq >= $1 AND seq <= $2 ORDER BY seq",
        add: add_ledger,
    },
    ChainedTable {
        chain: chain::AUDIT,
        rows: "audit events of revisions",
        select: "SELECT revision, position, at, origin, actor, action, kind, id, name, detail, address FROM audit \
                 WHERE revision >= $1 AND revision <= $2 ORDER BY revision, position",
        add: add_audit,
    },
];

fn add_ledger(mac: &mut RowMac, row: &AnyRow) -> Result<(), sqlx::Error> {
    let covered: [Option<i64>; 4] = [row.try_get(6)?, row.try_get(7)?, row.try_get(8)?, row.try_get(9)?];
    let entry = LedgerLinkRow {
        seq: row.try_get(0)?,
        member: row.try_get(1)?,
        at: row.try_get(2)?,
        kind: row.try_get(3)?,
        amount: row.try_get(4)?,
        balance: row.try_get(5)?,
        // Either all four numbers are set or none. A row with only some of them was changed; without them its MAC differs.
        covered: if let [Some(batch), Some(requests), Some(first), Some(last)] = covered {
            Some([batch, requests, first, last])
        } else {
            None
        },
        parts: row.try_get(10)?,
        idempotency_key: row.try_get(11)?,
        note: row.try_get(12)?,
        actor: row.try_get(13)?,
        address: row.try_get(14)?,
    };
    entry.add_to(mac);
    Ok(())
}

fn add_audit(mac: &mut RowMac, row: &AnyRow) -> Result<(), sqlx::Error> {
    for at in 0..3 {
        mac.number(row.try_get(at)?);
    }
    for at in 3..10 {
        mac.text(row.try_get(at)?);
    }
    mac.maybe_text(row.try_get(10)?);
    Ok(())
}

/// Adds a link to a chain in an open transaction that excludes other writers of the chain.
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

impl SqlStore {
    /// Recomputes both chains and compares them with the stored links.
    pub(super) async fn verify_chains(
        &self,
        snapshot: &mut Transaction<'static, Any>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        for table in &TABLES {
            let key = ChainKey::of(&self.hasher);
            let mut check = ChainCheck { key, table, last: i64::MIN, mac: String::new() };
            check.run(snapshot, report).await.map_err(|error| self.failed(VERIFY, error))?;
        }
        Ok(())
    }
}

impl ChainCheck<'_> {
    async fn run(&mut self, snapshot: &mut Transaction<'static, Any>, report: &mut VerifyReport) -> Result<(), sqlx::Error> {
        loop {
            let sql = "SELECT first, last, mac FROM chain_links WHERE chain = $1 AND last > $2 ORDER BY last LIMIT $3";
            let query = sqlx::query(sql).bind(self.table.chain).bind(self.last).bind(LINKS_AT_ONCE);
            let rows = query.fetch_all(&mut **snapshot).await?;
            let read = |row: &AnyRow| Ok(Link { first: row.try_get(0)?, last: row.try_get(1)?, mac: row.try_get(2)? });
            let links: Vec<Link> = rows.iter().map(read).collect::<Result<_, sqlx::Error>>()?;
            let to = links.last().map_or(i64::MAX, |link| link.last);
            self.compare(snapshot, &links, to, report).await?;
            if links.is_empty() {
                return self.check_head(snapshot, report).await;
            }
        }
    }

    /// Compares the rows after the last position up to `to` with their links.
    async fn compare(
        &mut self,
        snapshot: &mut Transaction<'static, Any>,
        links: &[Link],
        to: i64,
        report: &mut VerifyReport,
    ) -> Result<(), sqlx::Error> {
        let from = self.last.saturating_add(1);
        let mut rows = sqlx::query(self.table.select).bind(from).bind(to).fetch(&mut **snapshot);
        let mut next = rows.try_next().await?;
        for link in links {
            let mut mac = self.key.link(self.table.chain, link.first, link.last, &self.mac);
            while let Some(row) = &next {
                let position: i64 = row.try_get(0)?;
                if position > link.last {
                    break;
                }
                if position < link.first {
                    self.unlinked(position, report);
                } else {
                    (self.table.add)(&mut mac, row)?;
                }
                next = rows.try_next().await?;
            }
            if mac.finish() != link.mac {
                let what = format!("{} {} to {}", self.table.rows, link.first, link.last);
                report.differs(ConsistencyRule::Chain, what, link.first, link.last);
            }
            (self.last, self.mac) = (link.last, link.mac.clone());
        }
        while let Some(row) = next {
            self.unlinked(row.try_get(0)?, report);
            next = rows.try_next().await?;
        }
        Ok(())
    }

    /// A row that no link covers.
    fn unlinked(&self, position: i64, report: &mut VerifyReport) {
        report.differs(ConsistencyRule::Chain, format!("{} {position} to {position}", self.table.rows), position, position);
    }

    /// Checks that the last link is the one that the head names.
    async fn check_head(&self, snapshot: &mut Transaction<'static, Any>, report: &mut VerifyReport) -> Result<(), sqlx::Error> {
        let sql = "SELECT last, mac, seal FROM chain_heads WHERE chain = $1";
        let row = sqlx::query(sql).bind(self.table.chain).fetch_optional(&mut **snapshot).await?;
        let Some(row) = row else {
            if self.last > i64::MIN {
                report.differs(ConsistencyRule::ChainEnd, self.table.rows.to_owned(), self.last, 0);
            }
            return Ok(());
        };
        let (last, mac, seal): (i64, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        if (last, &mac) != (self.last, &self.mac) || seal != self.key.head(self.table.chain, last, &mac) {
            report.differs(ConsistencyRule::ChainEnd, self.table.rows.to_owned(), last, self.last.max(0));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
