/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's network card: its drivers are in /modules, in the order of their names. */
#ifndef SEEDS_CARD_H
#define SEEDS_CARD_H

#include <arpa/inet.h>
#include <dirent.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "first.h"

#define CARD_ADDRESS "10.31.0.1"
#define CARD_MASK    "255.255.255.0"

static void card_drivers(void)
{
	struct dirent **found;
	int number = scandir("/modules", &found, NULL, alphasort);

	for (int i = 0; i < number; i++) {
		char path[300];
		int file;

		if (found[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/modules/%s", found[i]->d_name);
		file = open(path, O_RDONLY | O_CLOEXEC);
		if (syscall(SYS_finit_module, file, "", 0))
			fail(path);
		close(file);
	}
}

/* Load the drivers, and give the card its address. */
static void card_begin(void)
{
	struct ifreq request = {.ifr_name = "eth0"};
	struct sockaddr_in *address = (struct sockaddr_in *)&request.ifr_addr;
	int any = socket(AF_INET, SOCK_DGRAM, 0);

	card_drivers();
	address->sin_family = AF_INET;
	inet_pton(AF_INET, CARD_ADDRESS, &address->sin_addr);
	if (ioctl(any, SIOCSIFADDR, &request))
		fail("SIOCSIFADDR");
	inet_pton(AF_INET, CARD_MASK, &address->sin_addr);
	if (ioctl(any, SIOCSIFNETMASK, &request))
		fail("SIOCSIFNETMASK");
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (ioctl(any, SIOCSIFFLAGS, &request))
		fail("SIOCSIFFLAGS");
	close(any);
}

#endif
