//! Arguments of the commands for members who sign in.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, builder::NonEmptyStringValueParser};

use super::resources::{ResourceCommand, RowName};

/// Subcommands of `member`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Member {
    #[command(flatten)]
    Row(ResourceCommand),
    /// Create a one-time link that sets a member's password, or set the password directly
    ResetPassword {
        #[command(flatten)]
        member: RowName,
        /// Read the new password from standard input instead of creating a link
        #[arg(long)]
        stdin: bool,
    },
    /// Show what a member signs in with
    Login {
        #[command(flatten)]
        member: RowName,
        /// Set the e-mail address to sign in with, besides the name; an empty one removes it
        #[arg(long, value_name = "ADDRESS")]
        email: Option<String>,
        /// Unlink the account of the OpenID provider and end the member's sessions
        #[arg(long)]
        unlink: bool,
    },
    /// Let a member who lost the authenticator app sign in without one-time codes
    DisableTotp(RowName),
    /// List the passkeys of a member
    Passkeys(RowName),
    /// Remove a passkey of a member, or all of them, which ends the member's sessions
    RemovePasskey {
        #[command(flatten)]
        member: RowName,
        /// Its id
        #[arg(required_unless_present = "all", conflicts_with = "all", value_parser = NonEmptyStringValueParser::new())]
        passkey: Option<String>,
        /// All passkeys, such as those of a lost device
        #[arg(long)]
        all: bool,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Invite {
    /// Create an invite and print its link, which is shown only once
    Create {
        /// Role of the new member
        #[arg(long, value_enum, default_value_t = Role::Member)]
        role: Role,
        /// A private group the member may use; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Note for admins, such as the person's name
        #[arg(long, default_value = "")]
        note: String,
        /// When it expires: 7d, 12h, or a time such as 2027-01-01T00:00:00Z [default: 7d]
        #[arg(long, value_name = "WHEN")]
        expires: Option<String>,
    },
    /// List invites
    List,
    /// Revoke an invite that has not been accepted yet
    Revoke {
        /// Its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        invite: String,
    },
}

/// Role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Its own keys, usage and balance
    Member,
    /// Channels, groups, models, keys and usage
    Operator,
    /// Everything
    Admin,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Session {
    /// List open sessions
    List {
        /// Only sessions of this member (name or id)
        #[arg(long)]
        member: Option<String>,
    },
    /// End a session
    Revoke {
        /// Its id
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        session: String,
    },
}

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Init {
    /// Settings file to write
    #[arg(long, value_name = "FILE", default_value = "tollgate.toml")]
    pub(crate) file: PathBuf,
    /// Address that serves callers [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<String>,
    /// Address of the console as browsers see it, such as `https://gateway.example.com`
    #[arg(long, value_name = "URL")]
    pub(crate) console_url: Option<String>,
    /// Name of the first admin [default: owner]
    #[arg(long, value_name = "NAME")]
    pub(crate) admin: Option<String>,
    /// Read the admin's password from standard input [default: `$TOLLGATE_ADMIN_PASSWORD`, else a prompt]
    #[arg(long)]
    pub(crate) password_stdin: bool,
    /// Set no password; `tollgate setup-link` creates a link that sets it
    #[arg(long, conflicts_with_all = ["admin", "password_stdin"])]
    pub(crate) no_admin: bool,
}
