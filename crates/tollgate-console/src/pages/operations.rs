//! The routes of the admin API that pages call, by id. A test compares them with the table.

macro_rules! operations {
    ($($name:ident = $id:literal;)+) => {
        $(pub(crate) const $name: &str = $id;)+
        #[cfg(test)]
        pub(crate) const ALL: &[&str] = &[$($id),+];
    };
}

operations! {
    ACCEPT_INVITE = "accept_invite";
    CHANGE_KEY = "change_key";
    CHANGE_PASSWORD = "change_password";
    SET_SETTING = "set_setting";
    CHANGE_PREFERENCES = "change_preferences";
    CHECK_INVITE = "check_invite";
    CHECK_PASSWORD_LINK = "check_password_link";
    DISABLE_KEY = "disable_key";
    DISABLE_TOTP = "disable_totp";
    DRAW_USAGE = "draw_usage";
    ENABLE_TOTP = "enable_totp";
    END_SESSION = "end_session";
    GET_KEY = "get_key";
    GET_KEY_ALLOWANCE = "get_key_allowance";
    GET_LOGIN = "get_login";
    GET_TOTP = "get_totp";
    LIST_KEYS = "list_keys";
    GET_USAGE = "get_usage";
    LIST_SESSIONS = "list_sessions";
    LIST_SIGN_IN_METHODS = "list_sign_in_methods";
    LIST_USAGE = "list_usage";
    MAKE_KEY = "make_key";
    MAKE_RECOVERY_CODES = "make_recovery_codes";
    MAKE_TOTP_SECRET = "make_totp_secret";
    REVOKE_KEY = "revoke_key";
    ROTATE_KEY = "rotate_key";
    SIGN_IN = "sign_in";
    SIGN_IN_WITH_CODE = "sign_in_with_code";
    SIGN_OUT = "sign_out";
    SUM_USAGE = "sum_usage";
    USE_PASSWORD_LINK = "use_password_link";
}
