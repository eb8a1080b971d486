# Every recipe only calls `cargo xtask`, the one entry point.

# List the recipes.
default:
    @just --list

# Say what this machine lacks for the test bed.
doctor:
    cargo xtask doctor

# From nothing to a request served.
demo *ARGS:
    cargo xtask demo {{ARGS}}

# Enter a running cluster.
shell *ARGS:
    cargo xtask shell {{ARGS}}

# Run the tests, all or one part.
test *ARGS:
    cargo xtask test {{ARGS}}

# Build OCI archives of our programs.
image *ARGS:
    cargo xtask image {{ARGS}}
