//! Complete answers.

use bytes::Bytes;

use crate::{BadReply, Method, PassedReply, ReplyEdits};

pub(super) fn read_reply(_method: Method, _body: &Bytes, _edits: &ReplyEdits) -> Result<PassedReply, BadReply> {
    Err(BadReply::Unreadable("not read yet"))
}
