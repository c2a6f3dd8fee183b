//! How members sign in, in the database: the [`IdentityStore`] and the operations of a batch of changes.

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use sqlx::{Row as _, any::AnyRow};
use tollgate_core::{InviteId, MemberId, PasskeyId, SessionId, Timestamp};

use super::{
    change_transaction::SqlChangeTransaction,
    rows::{AnyQuery, select},
    store::SqlStore,
};
use crate::{
    IdentityStore, IdleTimes, Invite, InviteState, KeyHash, LinkKind, LoginMember, MAX_MAILED_MEMBERS, MAX_SHARING_MEMBERS,
    MailedMember, MemberSpec, Passkey, PasswordLink, RowKind, SavedView, Session, SessionFilter, SortOrder, StoreError,
    UsedChallenge,
    identity::REMEMBERED,
    identity_rows::{IdentityTransaction, InviteRow, LinkRow, LoginRow, SessionRow, mailed_member, shared_views},
    preferences::{NOTICE_MAIL, SHARED_VIEW},
    rows::{CatalogRow, spec_text},
};

const READ: &str = "read how members sign in";

const LOGIN: &str = "SELECT member_id, email, subject, totp, state FROM logins";
const SESSION: &str = "SELECT id, member_id, seen_at, ends_at, spec FROM sessions";
const INVITE: &str = "SELECT id, hash, expires_at, spec FROM invites";
const PASSKEY: &str = "SELECT id, member_id, credential, public_key, spec FROM passkeys";
const LINK: &str = "SELECT member_id, hash, kind, expires_at FROM password_links";

fn decode<T: DeserializeOwned>(text: &str) -> Result<T, sqlx::Error> {
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

fn malformed(what: &'static str) -> sqlx::Error {
    sqlx::Error::Decode(what.into())
}

fn login_row(row: &AnyRow) -> Result<LoginRow, sqlx::Error> {
    Ok(LoginRow {
        member: row.try_get(0)?,
        email: row.try_get(1)?,
        subject: row.try_get(2)?,
        totp: row.try_get(3)?,
        state: decode(row.try_get(4)?)?,
    })
}

fn mailed_row(row: &AnyRow) -> Result<Option<MailedMember>, sqlx::Error> {
    let notified: Vec<String> = decode(row.try_get(5)?)?;
    Ok(mailed_member(&login_row(row)?, notified))
}

fn session(row: &AnyRow) -> Result<Session, sqlx::Error> {
    let id = SessionId::parse(row.try_get(0)?).ok_or_else(|| malformed("the id of a session"))?;
    Ok(Session {
        id,
        member: MemberId::parse(row.try_get(1)?).ok_or_else(|| malformed("the member of a session"))?,
        created_at: id.time(),
        seen_at: Timestamp(row.try_get(2)?),
        ends_at: Timestamp(row.try_get(3)?),
        spec: decode(row.try_get(4)?)?,
    })
}

fn hash(row: &AnyRow, column: usize) -> Result<KeyHash, sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    bytes.try_into().map(KeyHash).map_err(|_| malformed("a hash does not have 32 bytes"))
}

fn invite_row(row: &AnyRow) -> Result<InviteRow, sqlx::Error> {
    let id = InviteId::parse(row.try_get(0)?).ok_or_else(|| malformed("the id of an invite"))?;
    let invite = Invite { id, expires_at: Timestamp(row.try_get(2)?), spec: decode(row.try_get(3)?)? };
    Ok(InviteRow { hash: hash(row, 1)?, invite })
}

fn link_row(row: &AnyRow) -> Result<LinkRow, sqlx::Error> {
    let kind: String = row.try_get(2)?;
    Ok(LinkRow {
        member: row.try_get(0)?,
        hash: hash(row, 1)?,
        kind: LinkKind::parse(&kind).ok_or_else(|| malformed("the kind of a link"))?,
        expires_at: Timestamp(row.try_get(3)?),
    })
}

fn passkey(row: &AnyRow) -> Result<Passkey, sqlx::Error> {
    Ok(Passkey {
        id: PasskeyId::parse(row.try_get(0)?).ok_or_else(|| malformed("the id of a passkey"))?,
        member: MemberId::parse(row.try_get(1)?).ok_or_else(|| malformed("the member of a passkey"))?,
        credential: row.try_get(2)?,
        public_key: row.try_get(3)?,
        spec: decode(row.try_get(4)?)?,
    })
}

impl SqlStore {
    async fn login_member(&self, row: &CatalogRow) -> Result<LoginMember, StoreError> {
        let query = sqlx::query(statement(LOGIN, " WHERE member_id = $1")).bind(row.id.clone());
        let login = self.fetch_as(READ, query, login_row).await?.pop().unwrap_or_else(|| LoginRow::of(&row.id));
        let id = MemberId::parse(&row.id).ok_or_else(|| row.broken("its id is malformed"))?;
        let login = match login.clone().open(&self.sealer) {
            // The data key was replaced.
            Err(StoreError::Sealed { .. }) => {
                self.reload_keys().await?;
                login.open(&self.sealer)?
            }
            opened => opened?,
        };
        Ok(LoginMember::of(id, &row.read::<MemberSpec>()?, login))
    }

    /// The member with this id, removed or not.
    async fn member_row(&self, id: &str) -> Result<Option<CatalogRow>, StoreError> {
        let query = select(RowKind::Member, "WHERE kind = 'member' AND removed_at IS NULL AND id = $1").bind(id.to_owned());
        Ok(self.fetch_rows(READ, query).await?.pop())
    }

    async fn with_login(&self, row: Option<CatalogRow>) -> Result<Option<LoginMember>, StoreError> {
        match row {
            Some(row) => self.login_member(&row).await.map(Some),
            None => Ok(None),
        }
    }

    async fn linked_member(&self, column: &'static str, text: &str) -> Result<Option<CatalogRow>, StoreError> {
        let query = sqlx::query(statement(LOGIN, column)).bind(text.to_owned());
        match self.fetch_as(READ, query, login_row).await?.pop() {
            Some(login) => self.member_row(&login.member).await,
            None => Ok(None),
        }
    }
}

/// A statement out of fixed parts.
fn statement(head: &'static str, tail: &'static str) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(format!("{head}{tail}"))
}

#[async_trait]
impl IdentityStore for SqlStore {
    async fn login(&self, member: MemberId) -> Result<Option<LoginMember>, StoreError> {
        self.with_login(self.member_row(&member.to_string()).await?).await
    }

    async fn find_login(&self, text: &str) -> Result<Option<LoginMember>, StoreError> {
        let query = select(RowKind::Member, "WHERE kind = 'member' AND removed_at IS NULL AND name = $1").bind(text.to_owned());
        let row = match self.fetch_rows(READ, query).await?.pop() {
            Some(row) => Some(row),
            None => self.linked_member(" WHERE email = $1", &text.to_lowercase()).await?,
        };
        self.with_login(row).await
    }

    async fn shared_views(&self) -> Result<Vec<(MemberId, SavedView)>, StoreError> {
        let query = sqlx::query(statement(LOGIN, " WHERE state LIKE $1 ORDER BY member_id LIMIT $2"))
            .bind(format!("%{SHARED_VIEW}%"))
            .bind(i64::try_from(MAX_SHARING_MEMBERS).unwrap_or(i64::MAX));
        Ok(shared_views(self.fetch_as(READ, query, login_row).await?.iter()))
    }

    async fn find_subject(&self, subject: &str) -> Result<Option<LoginMember>, StoreError> {
        self.with_login(self.linked_member(" WHERE subject = $1", subject).await?).await
    }

    async fn session(&self, hash: &KeyHash, now: Timestamp, idle: IdleTimes) -> Result<Option<(Session, LoginMember)>, StoreError> {
        let query = sqlx::query(statement(SESSION, " WHERE hash = $1")).bind(hash.0.to_vec());
        let Some(found) = self.fetch_as(READ, query, session).await?.pop() else { return Ok(None) };
        let member = IdentityStore::login(self, found.member).await?.filter(|member| found.is_valid(member, now, idle));
        Ok(member.map(|member| (found, member)))
    }

    async fn touch_session(&self, session: &Session, now: Timestamp, address: &str) -> Result<(), StoreError> {
        let mut spec = session.spec.clone();
        address.clone_into(&mut spec.client.address);
        let update = sqlx::query("UPDATE sessions SET seen_at = $2, spec = $3 WHERE id = $1 AND seen_at < $2");
        let update = update.bind(session.id.to_string()).bind(now.0).bind(spec_text(&spec));
        update.execute(self.pools.writer()).await.map(drop).map_err(|error| self.failed("note the use of a session", error))
    }

    async fn sessions(&self, filter: &SessionFilter) -> Result<Vec<Session>, StoreError> {
        let tail = " WHERE id > $1 AND ends_at > $2 AND (seen_at > $3 OR (seen_at > $4 AND spec LIKE $5)) \
                    AND (CAST($6 AS TEXT) IS NULL OR member_id = $6) AND (CAST($7 AS TEXT) IS NULL OR member_id = $7) \
                    AND (CAST($8 AS TEXT) IS NULL OR id = $8) ORDER BY id LIMIT $9";
        let query = sqlx::query(statement(SESSION, tail))
            .bind(filter.after.map_or_else(String::new, |after| after.to_string()))
            .bind(filter.now.0)
            .bind(filter.now.plus_ms(-filter.idle.idle_ms).0)
            .bind(filter.now.plus_ms(-filter.idle.remembered_ms).0)
            .bind(format!("%{REMEMBERED}%"))
            .bind(filter.member.map(|member| member.to_string()))
            .bind(filter.scope.member_text())
            .bind(filter.id.map(|id| id.to_string()))
            .bind(i64::from(filter.limit.min(1_001)));
        self.fetch_as(READ, query, session).await
    }

    async fn invites(&self, after: Option<InviteId>, order: SortOrder, limit: u32) -> Result<Vec<Invite>, StoreError> {
        // Ids begin with `inv_`, so the bounds for a missing position are below and above all of them.
        let (condition, outermost) = match order {
            SortOrder::Oldest => (" WHERE id > $1 ORDER BY id LIMIT $2", ""),
            SortOrder::Newest => (" WHERE id < $1 ORDER BY id DESC LIMIT $2", "z"),
        };
        let query = sqlx::query(statement(INVITE, condition));
        let query =
            query.bind(after.map_or_else(|| outermost.to_owned(), |after| after.to_string())).bind(i64::from(limit.min(1_001)));
        Ok(self.fetch_as(READ, query, invite_row).await?.into_iter().map(|row| row.invite).collect())
    }

    async fn invite(&self, id: InviteId) -> Result<Option<Invite>, StoreError> {
        let query = sqlx::query(statement(INVITE, " WHERE id = $1")).bind(id.to_string());
        Ok(self.fetch_as(READ, query, invite_row).await?.pop().map(|row| row.invite))
    }

    async fn find_invite(&self, hash: &KeyHash) -> Result<Option<Invite>, StoreError> {
        let query = sqlx::query(statement(INVITE, " WHERE hash = $1")).bind(hash.0.to_vec());
        Ok(self.fetch_as(READ, query, invite_row).await?.pop().map(|row| row.invite))
    }

    async fn find_link(&self, hash: &KeyHash) -> Result<Option<PasswordLink>, StoreError> {
        let query = sqlx::query(statement(LINK, " WHERE hash = $1")).bind(hash.0.to_vec());
        let Some(link) = self.fetch_as(READ, query, link_row).await?.pop() else { return Ok(None) };
        let member = MemberId::parse(&link.member);
        Ok(member.map(|member| PasswordLink { kind: link.kind, member, expires_at: link.expires_at }))
    }

    async fn passkeys(&self, member: MemberId) -> Result<Vec<Passkey>, StoreError> {
        let query = sqlx::query(statement(PASSKEY, " WHERE member_id = $1 ORDER BY id")).bind(member.to_string());
        self.fetch_as(READ, query, passkey).await
    }

    async fn find_passkey(&self, credential: &[u8]) -> Result<Option<(Passkey, LoginMember)>, StoreError> {
        let query = sqlx::query(statement(PASSKEY, " WHERE credential = $1")).bind(credential.to_vec());
        let Some(found) = self.fetch_as(READ, query, passkey).await?.pop() else { return Ok(None) };
        let member = IdentityStore::login(self, found.member).await?;
        Ok(member.map(|member| (found, member)))
    }

    async fn mailed_members(&self) -> Result<Vec<MailedMember>, StoreError> {
        let sql = "SELECT member_id, email, subject, totp, state, told FROM logins \
                   WHERE email IS NOT NULL AND state LIKE $1 ORDER BY member_id LIMIT $2";
        let query = sqlx::query(sql).bind(format!("%{NOTICE_MAIL}%")).bind(i64::try_from(MAX_MAILED_MEMBERS).unwrap_or(i64::MAX));
        Ok(self.fetch_as(READ, query, mailed_row).await?.into_iter().flatten().collect())
    }

    async fn record_notified(&self, member: MemberId, notified: &[String]) -> Result<(), StoreError> {
        let update =
            sqlx::query("UPDATE logins SET told = $2 WHERE member_id = $1").bind(member.to_string()).bind(spec_text(&notified));
        update.execute(self.pools.writer()).await.map(drop).map_err(|error| self.failed("record a member's notices", error))
    }

    async fn admins(&self) -> Result<Vec<LoginMember>, StoreError> {
        let sql = "WHERE kind = 'member' AND removed_at IS NULL AND spec LIKE '%\"role\":\"admin\"%' \
                   AND spec LIKE '%\"status\":\"active\"%' ORDER BY id LIMIT 100";
        let mut admins = Vec::new();
        for row in self.fetch_rows(READ, select(RowKind::Member, sql)).await? {
            admins.push(self.login_member(&row).await?);
        }
        Ok(admins)
    }
}

impl SqlChangeTransaction<'_> {
    async fn one<T>(
        &mut self,
        query: AnyQuery<'_>,
        read: impl Fn(&AnyRow) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, StoreError> {
        let failed = self.read_failed();
        let found = query.fetch_optional(&mut *self.connection).await;
        found.and_then(|row| row.as_ref().map(read).transpose()).map_err(failed)
    }
}

#[async_trait]
impl IdentityTransaction for SqlChangeTransaction<'_> {
    async fn login_row(&mut self, member: &str) -> Result<Option<LoginRow>, StoreError> {
        self.one(sqlx::query(statement(LOGIN, " WHERE member_id = $1")).bind(member.to_owned()), login_row).await
    }

    async fn member_of_email(&mut self, email: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query("SELECT member_id FROM logins WHERE email = $1").bind(email.to_owned());
        self.one(query, |row| row.try_get(0)).await
    }

    async fn member_of_subject(&mut self, subject: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query("SELECT member_id FROM logins WHERE subject = $1").bind(subject.to_owned());
        self.one(query, |row| row.try_get(0)).await
    }

    async fn put_login(&mut self, row: &LoginRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO logins (member_id, email, subject, totp, state) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (member_id) DO UPDATE SET email = $2, subject = $3, totp = $4, state = $5";
        let query = sqlx::query(sql)
            .bind(row.member.clone())
            .bind(row.email.clone())
            .bind(row.subject.clone())
            .bind(row.totp.clone())
            .bind(spec_text(&row.state));
        self.execute(query).await
    }

    async fn delete_login(&mut self, member: &str) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM logins WHERE member_id = $1").bind(member.to_owned())).await?;
        self.delete_passkeys(member).await?;
        self.delete_sessions(member).await?;
        self.delete_links(member).await
    }

    async fn sessions_of(&mut self, member: &str) -> Result<Vec<Session>, StoreError> {
        let failed = self.read_failed();
        let query = sqlx::query(statement(SESSION, " WHERE member_id = $1 ORDER BY id")).bind(member.to_owned());
        let rows = query.fetch_all(&mut *self.connection).await;
        rows.and_then(|rows| rows.iter().map(session).collect()).map_err(failed)
    }

    async fn session_row(&mut self, id: SessionId) -> Result<Option<Session>, StoreError> {
        self.one(sqlx::query(statement(SESSION, " WHERE id = $1")).bind(id.to_string()), session).await
    }

    async fn put_session(&mut self, row: &SessionRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO sessions (id, hash, member_id, seen_at, ends_at, spec) VALUES ($1, $2, $3, $4, $5, $6)";
        let SessionRow { hash, session } = row;
        let query = sqlx::query(sql)
            .bind(session.id.to_string())
            .bind(hash.0.to_vec())
            .bind(session.member.to_string())
            .bind(session.seen_at.0)
            .bind(session.ends_at.0)
            .bind(spec_text(&session.spec));
        self.execute(query).await
    }

    async fn delete_sessions(&mut self, member: &str) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM sessions WHERE member_id = $1").bind(member.to_owned())).await
    }

    async fn delete_session(&mut self, id: SessionId) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM sessions WHERE id = $1").bind(id.to_string())).await
    }

    async fn invite_by_hash(&mut self, hash: &KeyHash) -> Result<Option<InviteRow>, StoreError> {
        self.one(sqlx::query(statement(INVITE, " WHERE hash = $1")).bind(hash.0.to_vec()), invite_row).await
    }

    async fn invite_by_id(&mut self, id: InviteId) -> Result<Option<InviteRow>, StoreError> {
        self.one(sqlx::query(statement(INVITE, " WHERE id = $1")).bind(id.to_string()), invite_row).await
    }

    async fn open_invites(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        let query = sqlx::query("SELECT COUNT(*) FROM invites WHERE is_open = 1 AND expires_at > $1").bind(now.0);
        let count = self.one(query, |row| row.try_get::<i64, _>(0)).await?;
        Ok(usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX))
    }

    async fn put_invite(&mut self, row: &InviteRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO invites (id, hash, expires_at, is_open, spec) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (id) DO UPDATE SET is_open = $4, spec = $5";
        let InviteRow { hash, invite } = row;
        let query = sqlx::query(sql)
            .bind(invite.id.to_string())
            .bind(hash.0.to_vec())
            .bind(invite.expires_at.0)
            .bind(i64::from(invite.spec.state == InviteState::Open))
            .bind(spec_text(&invite.spec));
        self.execute(query).await
    }

    async fn link_of(&mut self, member: &str) -> Result<Option<LinkRow>, StoreError> {
        self.one(sqlx::query(statement(LINK, " WHERE member_id = $1")).bind(member.to_owned()), link_row).await
    }

    async fn link_row(&mut self, hash: &KeyHash) -> Result<Option<LinkRow>, StoreError> {
        self.one(sqlx::query(statement(LINK, " WHERE hash = $1")).bind(hash.0.to_vec()), link_row).await
    }

    async fn put_link(&mut self, row: &LinkRow) -> Result<(), StoreError> {
        let sql = "INSERT INTO password_links (member_id, hash, kind, expires_at) VALUES ($1, $2, $3, $4) \
                   ON CONFLICT (member_id) DO UPDATE SET hash = $2, kind = $3, expires_at = $4";
        let query = sqlx::query(sql).bind(row.member.clone()).bind(row.hash.0.to_vec());
        self.execute(query.bind(row.kind.as_str()).bind(row.expires_at.0)).await
    }

    async fn delete_links(&mut self, member: &str) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM password_links WHERE member_id = $1").bind(member.to_owned())).await
    }

    async fn passkeys_of(&mut self, member: &str) -> Result<Vec<Passkey>, StoreError> {
        let failed = self.read_failed();
        let query = sqlx::query(statement(PASSKEY, " WHERE member_id = $1 ORDER BY id")).bind(member.to_owned());
        let rows = query.fetch_all(&mut *self.connection).await;
        rows.and_then(|rows| rows.iter().map(passkey).collect()).map_err(failed)
    }

    async fn passkey_row(&mut self, id: PasskeyId) -> Result<Option<Passkey>, StoreError> {
        self.one(sqlx::query(statement(PASSKEY, " WHERE id = $1")).bind(id.to_string()), passkey).await
    }

    async fn has_credential(&mut self, credential: &[u8]) -> Result<bool, StoreError> {
        let query = sqlx::query(statement(PASSKEY, " WHERE credential = $1")).bind(credential.to_vec());
        Ok(self.one(query, passkey).await?.is_some())
    }

    async fn put_passkey(&mut self, row: &Passkey) -> Result<(), StoreError> {
        let sql = "INSERT INTO passkeys (id, member_id, credential, public_key, spec) VALUES ($1, $2, $3, $4, $5) \
                   ON CONFLICT (id) DO UPDATE SET spec = $5";
        let query = sqlx::query(sql)
            .bind(row.id.to_string())
            .bind(row.member.to_string())
            .bind(row.credential.clone())
            .bind(row.public_key.clone())
            .bind(spec_text(&row.spec));
        self.execute(query).await
    }

    async fn delete_passkey(&mut self, id: PasskeyId) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM passkeys WHERE id = $1").bind(id.to_string())).await
    }

    async fn delete_passkeys(&mut self, member: &str) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM passkeys WHERE member_id = $1").bind(member.to_owned())).await
    }

    async fn is_challenge_used(&mut self, challenge: &UsedChallenge) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT ends_at FROM used_challenges WHERE hash = $1").bind(challenge.hash.0.to_vec());
        Ok(self.one(query, |row| row.try_get::<i64, _>(0)).await?.is_some())
    }

    async fn use_challenge(&mut self, challenge: &UsedChallenge, now: Timestamp) -> Result<(), StoreError> {
        self.execute(sqlx::query("DELETE FROM used_challenges WHERE ends_at <= $1").bind(now.0)).await?;
        let query = sqlx::query("INSERT INTO used_challenges (hash, ends_at) VALUES ($1, $2)").bind(challenge.hash.0.to_vec());
        self.execute(query.bind(challenge.ends_at.0)).await
    }
}
