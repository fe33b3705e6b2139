// The part of Apple's Foundation that the syntax check of the host code needs.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef _Bool BOOL;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double CFTimeInterval, NSTimeInterval;
typedef struct objc_class *Class;
#ifndef nil
#define nil ((id)0)
#define Nil ((Class)0)
#endif

typedef struct _NSRange {
    NSUInteger location, length;
} NSRange;
static inline NSRange NSMakeRange(NSUInteger location, NSUInteger length) {
    NSRange r = { location, length };
    return r;
}
#define NSMaxRange(r) ((r).location + (r).length)

typedef struct _NSZone NSZone;
@class NSString, NSArray, NSDictionary, NSError, NSNumber;

@protocol NSObject
- (instancetype)retain;
- (oneway void)release;
- (instancetype)autorelease;
- (Class)class;
- (BOOL)isKindOfClass:(Class)c;
- (BOOL)conformsToProtocol:(Protocol *)p;
- (BOOL)respondsToSelector:(SEL)s;
@property (readonly, copy) NSString *description;
@end
@protocol NSCopying
- (id)copyWithZone:(NSZone *)zone;
@end
@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(void *)state objects:(id __unsafe_unretained[])buffer count:(NSUInteger)n;
@end

__attribute__((objc_root_class)) @interface NSObject <NSObject> {
    Class isa;
}
+ (instancetype)alloc;
+ (instancetype)new;
- (instancetype)init;
- (void)dealloc;
- (id)copy;
@end

@interface NSString : NSObject <NSCopying>
@property (readonly) NSUInteger length;
@property (readonly) const char *UTF8String;
+ (instancetype)stringWithUTF8String:(const char *)s;
+ (instancetype)stringWithFormat:(NSString *)format, ... __attribute__((format(__NSString__, 1, 2)));
+ (instancetype)string;
- (instancetype)initWithUTF8String:(const char *)s;
- (NSString *)stringByAppendingFormat:(NSString *)format, ... __attribute__((format(__NSString__, 1, 2)));
- (BOOL)isEqualToString:(NSString *)s;
@end
@interface NSMutableString : NSString
- (void)appendString:(NSString *)s;
- (void)appendFormat:(NSString *)format, ... __attribute__((format(__NSString__, 1, 2)));
@end
@interface NSConstantString : NSString
@end
@interface NSNumber : NSObject <NSCopying>
+ (NSNumber *)numberWithInt:(int)v;
+ (NSNumber *)numberWithBool:(BOOL)v;
+ (NSNumber *)numberWithInteger:(NSInteger)v;
+ (NSNumber *)numberWithUnsignedInteger:(NSUInteger)v;
@end
@interface NSArray : NSObject <NSCopying, NSFastEnumeration>
@property (readonly) NSUInteger count;
@property (readonly) id firstObject;
@property (readonly) id lastObject;
+ (instancetype)array;
+ (instancetype)arrayWithObject:(id)o;
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)n;
- (id)objectAtIndex:(NSUInteger)i;
- (NSString *)componentsJoinedByString:(NSString *)separator;
@end
@interface NSMutableArray : NSArray
+ (instancetype)arrayWithCapacity:(NSUInteger)n;
- (void)addObject:(id)o;
- (void)removeAllObjects;
@end
@interface NSDictionary : NSObject <NSCopying, NSFastEnumeration>
@property (readonly) NSUInteger count;
@property (readonly, copy) NSArray *allKeys;
+ (instancetype)dictionary;
+ (instancetype)dictionaryWithObject:(id)o forKey:(id)k;
+ (instancetype)dictionaryWithObjects:(const id[])objects forKeys:(const id<NSCopying>[])keys count:(NSUInteger)n;
- (id)objectForKey:(id)k;
@end
@interface NSMutableDictionary : NSDictionary
- (void)setObject:(id)o forKey:(id)k;
@end
typedef struct {
	NSInteger majorVersion, minorVersion, patchVersion;
} NSOperatingSystemVersion;
@interface NSProcessInfo : NSObject
@property(class, readonly, strong) NSProcessInfo *processInfo;
@property(readonly) NSOperatingSystemVersion operatingSystemVersion;
@end
@interface NSError : NSObject <NSCopying>
@property (readonly) NSInteger code;
@property (readonly, copy) NSString *domain;
@property (readonly, copy) NSString *localizedDescription;
@property (readonly, copy) NSDictionary *userInfo;
@end
