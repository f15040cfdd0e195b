// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/gang: a switch for cgroups.
 *
 * The RFC had a file cpu.gang in every cpu cgroup. No module can add a file to the cpu controller,
 * so the switch is here:
 *
 *   echo "/machine.slice/a.scope 1" > /sys/kernel/gang/cgroup     makes its threads a gang
 *   echo "/machine.slice/a.scope 0" > /sys/kernel/gang/cgroup     drops that gang
 *   cat /sys/kernel/gang/cgroup                                   lists cgroups that are gangs
 *
 * The path starts below the cgroup v2 mount. These gangs are in a domain of their own, the last,
 * made of the first 64 online CPUs. There is no such domain while /dev/gang has one of those CPUs.
 */
#include <linux/capability.h>
#include <linux/cgroup.h>
#include <linux/cpumask.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "cgroup.h"
#include "control.h"
#include "domain.h"
#include "sysfs.h"

#define SYSFS_DOMAIN  (GANG_MAX_CACHES - 1)
#define SYSFS_GANGS   32 /* the paths of so many fit into a page */
#define PATH_MAX_HERE 120

static unsigned int slot_us = 20000;
module_param(slot_us, uint, 0644);
MODULE_PARM_DESC(slot_us, "gangs of /sys/kernel/gang: length of a slot, microseconds");

static struct kobject *folder;
static struct {
	u64 id; /* 0: the entry is unused */
	char path[PATH_MAX_HERE];
} marked[SYSFS_GANGS];

static u32 number_of(int index)
{
	return GANG_MAX_GANGS - 1 - index;
}

static int make_domain(void)
{
	struct gang_domain *cpus;
	int cpu, error;

	if (gang_domain_find(SYSFS_DOMAIN))
		return 0;
	cpus = kzalloc(sizeof(*cpus), GFP_KERNEL);
	if (!cpus)
		return -ENOMEM;
	cpus->slot_us = slot_us;
	for_each_online_cpu(cpu)
		if (cpus->columns < GANG_CACHE_CPUS)
			cpus->cpu[cpus->columns++] = cpu;
	error = gang_domain_set(NULL, SYSFS_DOMAIN, cpus);
	kfree(cpus);
	return error == -EINVAL ? -EBUSY : error;
}

static int find_marked(u64 id)
{
	int i;

	for (i = 0; i < SYSFS_GANGS; i++)
		if (marked[i].id == id)
			return i;
	return -1;
}

static void unmark(int index)
{
	struct gang_domain none = {};
	int i;

	gang_drop(NULL, number_of(index));
	marked[index].id = 0;
	for (i = 0; i < SYSFS_GANGS; i++)
		if (marked[i].id)
			return;
	gang_domain_set(NULL, SYSFS_DOMAIN, &none);
}

static int mark(struct cgroup *cgroup, const char *path)
{
	u64 id = cgroup_id(cgroup);
	int index = find_marked(id), error;
	u32 seated, others;

	if (index < 0)
		index = find_marked(0);
	if (index < 0)
		return -ENOSPC;
	error = make_domain();
	if (error)
		return error;
	error = gang_set_cgroup(NULL, number_of(index), SYSFS_DOMAIN, GANG_WEIGHT_DEFAULT, cgroup,
				&seated, &others);
	if (error) {
		unmark(index); /* this drops the domain, too, if no other gang is in it */
		return error;
	}
	marked[index].id = id;
	strscpy(marked[index].path, path, PATH_MAX_HERE);
	return 0;
}

/* Unmark the cgroup that was marked with @path, also if the cgroup is gone. */
static int unmark_path(const char *path)
{
	int i;

	for (i = 0; i < SYSFS_GANGS; i++) {
		if (marked[i].id && !strcmp(marked[i].path, path)) {
			unmark(i);
			return 0;
		}
	}
	return -ENOENT;
}

static ssize_t cgroup_store(struct kobject *kobj, struct kobj_attribute *attr, const char *text,
			    size_t size)
{
	char path[PATH_MAX_HERE], *space;
	struct cgroup *cgroup;
	int error;

	if (!capable(CAP_SYS_NICE) || !capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (strscpy(path, text, sizeof(path)) < 0)
		return -ENAMETOOLONG;
	space = strrchr(strim(path), ' ');
	if (!space || (strcmp(space, " 0") && strcmp(space, " 1")))
		return -EINVAL;
	*space = '\0';
	mutex_lock(&gang_control);
	if (space[1] == '0') {
		error = unmark_path(path);
	} else {
		cgroup = cgroup_get_from_path(path);
		error = PTR_ERR_OR_ZERO(cgroup);
		if (!error) {
			error = mark(cgroup, path);
			cgroup_put(cgroup);
		}
	}
	mutex_unlock(&gang_control);
	return error ? error : size;
}

static ssize_t cgroup_show(struct kobject *kobj, struct kobj_attribute *attr, char *text)
{
	int i, length = 0;

	mutex_lock(&gang_control);
	for (i = 0; i < SYSFS_GANGS; i++)
		if (marked[i].id)
			length += sysfs_emit_at(text, length, "%s\n", marked[i].path);
	mutex_unlock(&gang_control);
	return length;
}

static struct kobj_attribute cgroup_file = __ATTR(cgroup, 0600, cgroup_show, cgroup_store);

int gang_sysfs_init(void)
{
	int error;

	folder = kobject_create_and_add("gang", kernel_kobj);
	if (!folder)
		return -ENOMEM;
	error = sysfs_create_file(folder, &cgroup_file.attr);
	if (error)
		kobject_put(folder);
	return error;
}

/* Remove the file: the kernel lets no writer into it any more when this returns. */
void gang_sysfs_exit(void)
{
	sysfs_remove_file(folder, &cgroup_file.attr);
	kobject_put(folder);
}
