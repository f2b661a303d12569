#define _GNU_SOURCE
#include "frames.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* As much of a frame as is looked at, from its network header on. */
#define SNAP         128
#define SOURCES_TEXT 7000
#define BUFFER_BYTES (1 << 20)

/* Offsets in the headers; the socket gives frames without their link header. */
#define IP4_PROTO      9
#define IP4_FRAGMENT   6
#define IP4_SOURCE     12
#define IP6_NEXT       6
#define IP6_SOURCE     8
#define IP6_PAYLOAD    40
#define ND_TARGET      (IP6_PAYLOAD + 8)
#define ARP_HARD_LEN   4
#define ARP_OPERATION  6
#define ARP_ADDRESSES  8
#define IP4_LEN        4
#define ARP_SENDER     (ARP_ADDRESSES + ETH_ALEN)
#define ARP_TARGET     (ARP_SENDER + IP4_LEN + ETH_ALEN)
#define ARP_BYTES      (ARP_TARGET + IP4_LEN)
#define FRAGMENT_START 0x1fff

/* ---- the filter ---------------------------------------------------------------------------- */

#define ANCILLARY(what) ((uint32_t)(SKF_AD_OFF + (what)))
#define LOAD_WORD(at)   BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (at))
#define LOAD_HALF(at)   BPF_STMT(BPF_LD | BPF_H | BPF_ABS, (at))
#define LOAD_BYTE(at)   BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (at))
/* Jumps over so many of the instructions that follow, when equal and when not. */
#define EQUAL(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), (yes), (no))

/* Lets through what others send to this box: ARP, and over IPv4 and IPv6 TCP and UDP to the port,
 * echo requests and neighbour solicitations. Fragments but the first have no port. */
static int attach_filter(int fd, uint16_t port) {
    struct sock_filter code[] = {
        LOAD_WORD(ANCILLARY(SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, PACKET_MULTICAST, 28, 0),
        LOAD_WORD(ANCILLARY(SKF_AD_HATYPE)),
        EQUAL(ARPHRD_LOOPBACK, 26, 0),
        LOAD_WORD(ANCILLARY(SKF_AD_PROTOCOL)),
        EQUAL(ETH_P_ARP, 25, 0),
        EQUAL(ETH_P_IPV6, 14, 0),
        EQUAL(ETH_P_IP, 0, 22),
        /* 8: IPv4 */
        LOAD_HALF(IP4_FRAGMENT),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FRAGMENT_START, 20, 0),
        BPF_STMT(BPF_LDX | BPF_B | BPF_MSH, 0),
        LOAD_BYTE(IP4_PROTO),
        EQUAL(IPPROTO_ICMP, 4, 0),
        EQUAL(IPPROTO_TCP, 1, 0),
        EQUAL(IPPROTO_UDP, 0, 15),
        BPF_STMT(BPF_LD | BPF_H | BPF_IND, 2),
        EQUAL(port, 14, 13),
        /* 17: ICMP */
        BPF_STMT(BPF_LD | BPF_B | BPF_IND, 0),
        EQUAL(ICMP_ECHO, 12, 11),
        /* 19: (not reached) */
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0),
        /* 21: IPv6 */
        LOAD_BYTE(IP6_NEXT),
        EQUAL(IPPROTO_ICMPV6, 4, 0),
        EQUAL(IPPROTO_TCP, 1, 0),
        EQUAL(IPPROTO_UDP, 0, 5),
        LOAD_HALF(IP6_PAYLOAD + 2),
        EQUAL(port, 4, 3),
        /* 27: ICMPv6 */
        LOAD_BYTE(IP6_PAYLOAD),
        EQUAL(ICMP6_ECHO_REQUEST, 2, 0),
        EQUAL(ND_NEIGHBOR_SOLICIT, 1, 0),
        /* 30, 31 */
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, SNAP),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}
