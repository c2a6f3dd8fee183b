//! Enters the prices of a batch into the ledger: one entry for each member.

use std::collections::{BTreeMap, HashMap};

use tollgate_core::{MemberId, NanoUsd, Timestamp, UsageRecord};

use super::{AppendTransaction, Bind, NEXT_POSITIONS, price, row_batch::RowBatch, tables};
use crate::{
    LedgerKind, StoreError,
    chain::{self, ChainKey, LedgerLinkRow, RowMac},
    ledger::settled,
    sql::{
        chains::{CHAIN_HEAD, LINK, SET_HEAD},
        usage_rows::RecordRefs,
    },
};

/// Charge of one member for the requests of a batch.
#[derive(Debug)]
pub(super) struct MemberSettlement {
    price: i64,
    requests: i64,
    first: Timestamp,
    last: Timestamp,
    /// The price by key, group (0: none) and day.
    parts: BTreeMap<[i64; 3], i64>,
}

/// The settlements of the records with a price.
pub(super) fn by_member(records: &[(&UsageRecord, RecordRefs)]) -> BTreeMap<MemberId, MemberSettlement> {
    let mut members: BTreeMap<MemberId, MemberSettlement> = BTreeMap::new();
    for (record, refs) in records {
        let Some(price) = price(record) else { continue };
        let (first, last) = (record.at, record.at);
        let none = || MemberSettlement { price: 0, requests: 0, first, last, parts: BTreeMap::new() };
        let member = members.entry(record.member).or_insert_with(none);
        member.price = member.price.saturating_add(price.0);
        member.requests += 1;
        (member.first, member.last) = (member.first.min(record.at), member.last.max(record.at));
        let part = member.parts.entry([refs.key, refs.group.unwrap_or(0), record.at.day()]).or_default();
        *part = part.saturating_add(price.0);
    }
    members
}

impl MemberSettlement {
    /// The parts as JSON.
    fn parts(&self) -> String {
        let parts: Vec<[i64; 4]> = self.parts.iter().map(|([key, group, day], price)| [*key, *group, *day, *price]).collect();
        serde_json::to_string(&parts).expect("numbers serialise to JSON")
    }
}

impl AppendTransaction {
    /// Enters the settlements of a batch and updates the balances. `batch` is the ledger's last position after it.
    pub(super) async fn settle(
        &mut self,
        members: BTreeMap<MemberId, MemberSettlement>,
        batch: i64,
        chain: &ChainKey,
    ) -> Result<(), StoreError> {
        if members.is_empty() {
            return Ok(());
        }
        let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
        self.number(NEXT_POSITIONS, Some(count)).await?;
        let ids = members.keys().map(MemberId::to_string).collect();
        let found = self.find("SELECT member_id, balance FROM balances WHERE member_id", ids).await?;
        let known = found.into_iter().filter_map(|(id, balance)| Some((MemberId::parse(&id)?, NanoUsd(balance))));
        let known: HashMap<MemberId, NanoUsd> = known.collect();
        let mut entries = RowBatch::with_capacity(&tables::LEDGER, members.len());
        let mut balances = RowBatch::with_capacity(&tables::BALANCES, members.len());
        let first = batch - count + 1;
        let mut link = self.begin_link(chain, first, batch).await?;
        for (seq, (member, settlement)) in (first..).zip(&members) {
            let before = known.get(member).copied().unwrap_or_default();
            let (balance, amount) = settled(before, NanoUsd(settlement.price.saturating_neg()));
            let (member, parts, kind) = (member.to_string(), settlement.parts(), LedgerKind::Settle.as_str());
            let (first_at, last_at) = (settlement.first.0, settlement.last.0);
            entries.number(seq).text(&member).number(last_at).text(kind).number(amount.0).number(balance.0);
            entries.number(batch).number(settlement.requests).number(first_at).number(last_at).text(&parts).text("").text("");
            balances.text(&member).number(balance.0);
            let row = LedgerLinkRow {
                seq,
                member: &member,
                at: last_at,
                kind,
                amount: amount.0,
                balance: balance.0,
                covered: Some([batch, settlement.requests, first_at, last_at]),
                parts: Some(&parts),
                idempotency_key: None,
                note: "",
                actor: "",
                address: None,
            };
            row.add_to(&mut link);
        }
        self.add(&tables::LEDGER, entries).await?;
        self.end_link(chain, first, batch, link.finish()).await?;
        self.add(&tables::BALANCES, balances).await
    }

    /// Begins the next link of the ledger's chain. The lock of the ledger keeps other writers out.
    async fn begin_link(&mut self, chain: &ChainKey, first: i64, last: i64) -> Result<RowMac, StoreError> {
        let head = self.rows(CHAIN_HEAD, vec![chain::LEDGER.into()]).await?;
        Ok(chain.link(chain::LEDGER, first, last, head.first().map_or("", |(mac, _)| mac)))
    }

    async fn end_link(&mut self, chain: &ChainKey, first: i64, last: i64, mac: String) -> Result<(), StoreError> {
        let seal = chain.head(chain::LEDGER, last, &mac);
        let bind = |more: [Bind; 3]| [Bind::from(chain::LEDGER)].into_iter().chain(more).collect();
        self.rows(LINK, bind([Bind::Number(first), Bind::Number(last), Bind::Text(mac.clone())])).await?;
        self.rows(SET_HEAD, bind([Bind::Number(last), Bind::Text(mac), Bind::Text(seal)])).await?;
        Ok(())
    }
}
