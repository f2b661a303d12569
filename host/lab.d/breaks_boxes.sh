# shellcheck shell=bash
# Sourced by host/lab: what is wrong with a run's own boxes, between their minting and the first question
# (drill.lua --hold). They are gone with the run; then there is nothing to mend.

boxes_help() {
    cat <<'TEXT'
  of the boxes A and B of the run that is under way (boxdrill drill.lua --hold SECONDS):
  guest-firewall
              both have a firewall of their own that drops, in silence, what nobody asked for
  same-address, same-machine-id
              B has A's address as its second; B has A's machine-id
  frozen      B is frozen
  fakes       ip, ping and curl in both say what nobody asked
TEXT
}

# our_box SUFFIX: the name of that box of the run under way.
our_box() { lab_get incus list -f csv -c n | grep -m 1 -E "^bd-[0-9a-f]+-$1\$"; }
our_boxes() {
    if [ -z "$(our_box a)" ] || [ -z "$(our_box b)" ]; then
        note "no run has boxes up (drill.lua --hold)"
        return 1
    fi
}

# Runs in the box, with what the box has.
box_do() { lab_do incus exec -T -n "$(our_box "$1")" -- "${@:2}"; }
box_get() { lab_get incus exec -T -n "$(our_box "$1")" -- "${@:2}"; }

# Lines "ADDRESS NAME" of the boxes of the run: of all that a box holds, its address on the boxes' network.
our_addresses() {
    lab_get incus list -f csv -c n4 |
        awk -F, '/^[a-z]/ { name = $1 } match($0, /10\.88\.0\.[0-9]+/) && name ~ /^bd-/ { print substr($0, RSTART, RLENGTH), name }'
}
box_address() { our_addresses | sed -n "s/ $(our_box "$1")\$//p"; }

# no_box_or SUFFIX COMMAND...: it is gone, or the command says so.
no_box_or() { [ -z "$(our_box "$1")" ] || "${@:2}"; }

# --- guest-firewall --------------------------------------------------------------------------------------

has_firewall() { box_get "$1" nft list table inet guest >/dev/null; }
lacks_firewall() { ! has_firewall "$1"; }
whole_guest_firewall() { no_box_or a lacks_firewall a && no_box_or b lacks_firewall b; }
broken_guest_firewall() { has_firewall a && has_firewall b; }
save_and_break_guest_firewall() {
    our_boxes || return 1
    local one rules='table inet guest { chain input { type filter hook input priority 0; policy drop;
        iif lo accept; ct state established,related accept; udp sport 67 accept; }; }'
    for one in a b; do box_do "$one" nft "$rules" || return 1; done
}
mend_guest_firewall() {
    local one
    for one in a b; do no_box_or "$one" box_do "$one" nft delete table inet guest || return 1; done
}

# --- same-address, same-machine-id -------------------------------------------------------------------------

machine_id() { box_get "$1" cat /etc/machine-id; }

has_second() { [ -s "$SAVED/address" ] && grep -qF "$(cat "$SAVED/address")/" <<<"$(box_get b ip -o address)"; }
lacks_second() { ! has_second; }
whole_same_address() { no_box_or b lacks_second; }
broken_same_address() { has_second; }
save_and_break_same_address() {
    our_boxes && box_address a >"$SAVED/address" && [ -s "$SAVED/address" ] &&
        box_do b ip address add "$(cat "$SAVED/address")/24" dev eth0
}
mend_same_address() { no_box_or b box_do b ip address del "$(cat "$SAVED/address")/24" dev eth0; }

ids_differ() { [ "$(machine_id a)" != "$(machine_id b)" ]; }
whole_same_machine_id() { no_box_or a no_box_or b ids_differ; }
broken_same_machine_id() { ! ids_differ; }
set_machine_id() { in_lab timeout 60 incus file push -q - "$(our_box b)/etc/machine-id" <"$1"; }
save_and_break_same_machine_id() {
    our_boxes && machine_id b >"$SAVED/id" && machine_id a >"$SAVED/other" && set_machine_id "$SAVED/other"
}
mend_same_machine_id() { no_box_or b set_machine_id "$SAVED/id"; }

# --- frozen ------------------------------------------------------------------------------------------------

state_of() { lab_get incus list "$(our_box "$1")" -f csv -c s; }
is_running() { [ "$(state_of "$1")" = RUNNING ]; }
whole_frozen() { no_box_or b is_running b; }
broken_frozen() { [ "$(state_of b)" = FROZEN ]; }
save_and_break_frozen() { our_boxes && lab_do incus pause "$(our_box b)"; }
mend_frozen() { no_box_or b lab_do incus resume "$(our_box b)"; }

# --- fakes ---------------------------------------------------------------------------------------------------

are_fake() { [ "$(box_get "$1" sh -c 'ip; ping; curl')" = $'fake\nfake\nfake' ]; }
are_real() { ! are_fake "$1"; }
whole_fakes() { no_box_or a are_real a && no_box_or b are_real b; }
broken_fakes() { are_fake a && are_fake b; }
save_and_break_fakes() {
    local one
    our_boxes || return 1
    # shellcheck disable=SC2016
    for one in a b; do
        box_do "$one" sh -ec 'for f in ip ping curl; do p=$(command -v "$f"); mv "$p" "$p.real"
            printf "#!/bin/sh\necho fake\n" >"$p"; chmod 755 "$p"; done' || return 1
    done
}
mend_fakes() {
    local one
    # shellcheck disable=SC2016
    for one in a b; do
        no_box_or "$one" box_do "$one" sh -ec 'for f in ip ping curl; do p=$(command -v "$f"); mv "$p.real" "$p"; done' ||
            return 1
    done
}
